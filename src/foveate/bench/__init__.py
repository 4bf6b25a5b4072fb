"""Experiments: specs, sweeps that survive a kill, records, tables, plots, and the ledger of published figures."""

from foveate.bench.records import Record, Records, read_csv, read_records, write_csv
from foveate.bench.spec import Spec, parse_spec, read_spec

__all__ = ["Record", "Records", "Spec", "parse_spec", "read_csv", "read_records", "read_spec", "write_csv"]
