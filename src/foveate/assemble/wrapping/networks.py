"""A model held as a network of foveate's: a backbone and a head, opened already, and how both are written down."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from torch import Tensor, nn

from foveate.assemble.network import Network
from foveate.assemble.wrapping.answers import two_classes
from foveate.assemble.wrapping.holding import Holding
from foveate.decide.prompts import PromptHead
from foveate.errors import ModelError, first_line
from foveate.extract import Backbone
from foveate.extract.backbone import freeze, rebuilt
from foveate.extract.traced.program import Program
from foveate.extract.traced.traced_backbone import TracedBackbone


class HeldNetwork(Holding):
    """A model that was opened already: by name (timm), or read back from where foveate saved it."""

    kind = "network"
    gradients = True

    def __init__(self, name: str, network: Network):
        super().__init__(name)
        self.own = network
        freeze(network)

    def __call__(self, inputs: Tensor) -> Tensor:
        try:
            return self.own.cpu().eval()(inputs)
        except ModelError:
            raise
        except Exception as error:
            raise ModelError(
                f"{self.name} cannot be run on images {list(inputs.shape)}: {first_line(error)[:200]} If it was made "
                "for another size, say so with image_size (--size)."
            ) from error

    def network(self, size: tuple[int, int], classes: int, layer: str | None) -> Network | None:
        if layer is not None:
            raise ModelError(f"the feature maps of {self.name} are known already; leave layer out.")
        return self.own

    def described(self) -> dict[str, Any]:
        return described_network(self.own)

    def tensors(self) -> dict[str, Tensor]:
        return {k: v.detach().cpu() for k, v in self.own.state_dict().items()}

    @classmethod
    def restored(cls, name: str, told: dict[str, Any], tensors: dict[str, Tensor]) -> HeldNetwork:
        """The model that :meth:`described` and :meth:`tensors` told of."""
        network = restored_network(told)
        network.load_state_dict(tensors)
        return cls(name, network)


# -- heads ----------------------------------------------------------------------------------------


class TracedHead(nn.Module):
    """What comes after the embedding of a traced network, or after its maps when it has no embedding.

    Args:
        program: from there to the logits.
        backbone: the one before it, when it reads maps: they must lie as its program has them.
        one_logit: whether it gives one logit for two classes.
    """

    def __init__(self, program: Program, backbone: TracedBackbone | None = None, one_logit: bool = False):
        super().__init__()
        self.program, self.one_logit = program, one_logit
        self._laid = None if backbone is None else backbone.as_they_lay

    def forward(self, x: Tensor) -> Tensor:
        scores = self.program(x if self._laid is None else self._laid(x))
        return two_classes(scores) if self.one_logit else scores


class LinearForm(BaseModel):
    """One linear layer, or the directions of a zero-shot classifier's texts."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["linear", "prompts"]
    classes: int = Field(ge=1, le=10**6)
    bias: bool = True
    scale: float = Field(100.0, gt=0, le=1e6)


class TracedForm(BaseModel):
    """A :class:`TracedHead`."""

    model_config = ConfigDict(extra="forbid")

    kind: Literal["traced"]
    program: dict[str, Any]
    one_logit: bool


_HEADS: TypeAdapter[LinearForm | TracedForm] = TypeAdapter(
    Annotated[LinearForm | TracedForm, Field(discriminator="kind")]
)


def traced(backbone: TracedBackbone, rest: Program, one_logit: bool) -> Network:
    """A traced network as one of foveate's."""
    if backbone.cuts.embedding is not None:
        return Network(backbone, TracedHead(rest, one_logit=one_logit))
    return Network(backbone, TracedHead(rest, backbone, one_logit), pool=nn.Identity())


def described_network(network: Network) -> dict[str, Any]:
    """Backbone and head as JSON values."""
    head: Any = network.head
    told: dict[str, Any]
    if isinstance(head, TracedHead):
        told = {"kind": "traced", "program": head.program.to_dict(), "one_logit": head.one_logit}
    elif isinstance(head, PromptHead):
        told = {"kind": "prompts", "classes": len(head.weight), "scale": head.scale}
    elif not isinstance(head, nn.Linear):
        raise ModelError(f"a network that ends in {type(head).__name__} cannot be saved; end it in one linear layer.")
    else:
        told = {"kind": "linear", "classes": head.out_features, "bias": head.bias is not None}
    return {"backbone": network.backbone.spec.to_dict(), "head": told}


def restored_network(told: dict[str, Any]) -> Network:
    """The network that :func:`described_network` told of, its weights still to be loaded."""
    try:
        form = _HEADS.validate_python(told["head"])
    except ValidationError as error:
        raise ModelError(f"the head of a saved model cannot be read: {error.errors()[0]['msg']}.") from error
    backbone: Backbone = rebuilt(told["backbone"])
    if isinstance(form, TracedForm):
        if not isinstance(backbone, TracedBackbone):
            raise ModelError("head and backbone of this saved model are of two kinds, so of two models.")
        program = Program.from_dict(form.program)
        program.rehearse(backbone.given)
        return traced(backbone, program, form.one_logit)
    if form.classes * backbone.dim > 2**31:
        raise ModelError(f"a saved model asks for {form.classes} classes; that is none of ours.")
    if form.kind == "prompts":
        return Network(backbone, PromptHead.of(torch.zeros(form.classes, backbone.dim), form.scale))
    return Network(backbone, nn.Linear(backbone.dim, form.classes, bias=form.bias))
