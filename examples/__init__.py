"""Short scripts, each with the picture it draws: ``python -m examples`` draws all, ``python -m examples NAME`` one."""
