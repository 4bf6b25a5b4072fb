"""Attention pools: the known answers of the fact sheet, and comparison with the equations written out."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from foveate.errors import FoveateError
from foveate.pool import GAP, AIMPool, AttentionPool, CLSPool, CrossAttention, EPPool, JetleyPool
from foveate.pool.attention import sincos_positions


def feature_map(b: int = 3, c: int = 8, h: int = 5, w: int = 4, seed: int = 0) -> Tensor:
    return torch.randn(b, c, h, w, generator=torch.Generator().manual_seed(seed))


def shuffled(maps: Tensor) -> Tensor:
    b, c, h, w = maps.shape
    order = torch.randperm(h * w, generator=torch.Generator().manual_seed(1))
    return maps.flatten(2)[:, :, order].view(b, c, h, w)


def identity(pool: AttentionPool) -> AttentionPool:
    """W^V = W^O = I in every layer."""
    with torch.no_grad():
        for layer in pool.layers:
            assert isinstance(layer, CrossAttention)
            layer.value.weight.copy_(torch.eye(pool.dim))
            layer.out.weight.copy_(torch.eye(pool.dim))
    return pool


# -- the layer -----------------------------------------------------------------------------


def test_cross_attention_is_the_equations_written_out() -> None:
    layer = CrossAttention(6, heads=3, head_dim=4, bias=True)
    nn.init.normal_(layer.value.bias)
    nn.init.normal_(layer.query.bias)
    queries, tokens = torch.randn(2, 5, 6), torch.randn(2, 7, 6)
    heads = []
    for i in range(3):
        rows = slice(4 * i, 4 * i + 4)
        q = queries @ layer.query.weight[rows].T + layer.query.bias[rows]
        k = tokens @ layer.key.weight[rows].T
        v = tokens @ layer.value.weight[rows].T + layer.value.bias[rows]
        heads.append((q @ k.transpose(1, 2) / 4**0.5).softmax(-1) @ v)
    wanted = layer.out(torch.cat(heads, dim=-1))
    assert torch.allclose(layer(queries, tokens)[0], wanted, atol=1e-5)


def test_cross_attention_is_torchs() -> None:
    layer, torchs = CrossAttention(8, heads=2), nn.MultiheadAttention(8, 2, bias=False, batch_first=True)
    with torch.no_grad():
        torchs.in_proj_weight.copy_(torch.cat([layer.query.weight, layer.key.weight, layer.value.weight]))
        torchs.out_proj.weight.copy_(layer.out.weight)
    q, f = torch.randn(3, 4, 8), torch.randn(3, 9, 8)
    result, weights = layer(q, f)
    wanted, their_weights = torchs(q, f, f, average_attn_weights=False)
    assert torch.allclose(result, wanted, atol=1e-5)
    assert torch.allclose(weights, their_weights, atol=1e-5)


# -- DAR -----------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("extras", [{}, {"residual": True, "norm": True, "bias": True}])
def test_order_of_places_does_not_matter(depth: int, extras: dict[str, bool]) -> None:
    pool = AttentionPool(8, queries=3, heads=2, depth=depth, **extras)
    maps = feature_map()
    assert torch.allclose(pool(maps), pool(shuffled(maps)), atol=1e-5)


def test_with_positions_the_order_matters_on_any_grid() -> None:
    pool = AttentionPool(8, queries=3, heads=2, positional=True)
    maps = feature_map()
    assert not torch.allclose(pool(maps), pool(shuffled(maps)), atol=1e-3)
    assert pool(feature_map(h=9, w=2)).shape == (3, 8)
    codes = sincos_positions(6, 5, 16)
    assert torch.cdist(codes, codes).fill_diagonal_(9).min() > 0.1  # every place has its own
    assert sincos_positions(2, 2, 10)[:, 8:].abs().sum() == 0  # widths not divisible by four


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 1000), st.integers(1, 2))
def test_convex_combination(seed: int, depth: int) -> None:
    """With W^V = W^O = I and one head, z is a convex combination of the tokens: inside their box, and
    reproduced by the attention weights."""
    torch.manual_seed(seed)
    pool = identity(AttentionPool(4, queries=3, heads=1, depth=depth))
    maps = 3 * feature_map(c=4, seed=seed)
    z, weights = pool(maps), pool.attention(maps)
    assert len(weights) == depth
    for w in weights:
        assert w.shape == (3, 1, 3, 5, 4)
        assert torch.allclose(w.sum((-2, -1)), torch.ones(3, 1, 3), atol=1e-5)
        assert (w >= 0).all()
    mean = weights[-1][:, 0].mean(1)  # over queries: still convex weights
    assert torch.allclose(z, torch.einsum("bchw,bhw->bc", maps, mean), atol=1e-4)
    assert (z <= maps.amax((2, 3)) + 1e-4).all()
    assert (z >= maps.amin((2, 3)) - 1e-4).all()


@pytest.mark.parametrize("silent", ["query", "key"])
def test_gap_recovery(silent: str) -> None:
    maps = feature_map()
    pool = AttentionPool(8, queries=3, heads=2)
    with torch.no_grad():
        for layer in pool.layers:
            getattr(layer, silent).weight.zero_()
    last = pool.layers[-1]
    assert isinstance(last, CrossAttention)
    wanted = GAP()(maps) @ last.value.weight.T @ last.out.weight.T
    assert torch.allclose(pool(maps), wanted, atol=1e-5)
    assert torch.allclose(identity(pool)(maps), GAP()(maps), atol=1e-5)
    assert torch.allclose(pool.attention(maps)[1], torch.full((3, 2, 3, 5, 4), 1 / 20))


def test_constant_map() -> None:
    pool = AttentionPool(8, queries=3, heads=2)
    f = torch.randn(2, 8)
    last = pool.layers[-1]
    assert isinstance(last, CrossAttention)
    wanted = f @ last.value.weight.T @ last.out.weight.T
    assert torch.allclose(pool(f[:, :, None, None].expand(2, 8, 4, 4)), wanted, atol=1e-5)


def test_identical_queries_stay_identical() -> None:
    pool = AttentionPool(8, queries=4, heads=2)
    with torch.no_grad():
        pool.queries[2] = pool.queries[0]
    z = pool.vectors(feature_map())
    assert torch.allclose(z[:, 2], z[:, 0], atol=1e-6)
    assert not torch.allclose(z[:, 1], z[:, 0], atol=1e-3)


def test_bare_equations_have_the_stated_parameters() -> None:
    pool = AttentionPool(512, queries=8, heads=8)
    assert sum(p.numel() for p in pool.parameters()) == 2 * 4 * 512**2 + 8 * 512
    assert sum(p.numel() for p in AttentionPool(512, depth=1).parameters()) == 4 * 512**2 + 8 * 512
    assert len({id(p) for p in pool.parameters()}) == len(list(pool.parameters()))
    assert pool.layers[0].key.weight is not pool.layers[1].key.weight


def test_queries_do_not_all_look_alike_at_the_start() -> None:
    torch.manual_seed(0)
    weights = AttentionPool(64).attention(feature_map(c=64, h=7, w=7).relu())[0]
    assert weights.std(2).mean() > 0.1 * weights.mean()


def test_tokens_and_errors() -> None:
    pool = AttentionPool(8, queries=3, heads=2)
    maps = feature_map()
    tokens = maps.flatten(2).transpose(1, 2)
    assert torch.allclose(pool(tokens), pool(maps), atol=1e-6)
    assert pool.attention(tokens)[0].shape == (3, 2, 3, 20)
    for bad, message in (
        (lambda: AttentionPool(10, heads=8), "do not divide"),
        (lambda: AttentionPool(8, heads=2, depth=3), "depth"),
        (lambda: pool(torch.zeros(2, 9, 4, 4)), "8 channels"),
        (lambda: pool(torch.zeros(2, 8)), r"\[B, C, H, W\]"),
        (lambda: AttentionPool(8, heads=2, positional=True)(tokens), "positional"),
    ):
        with pytest.raises(FoveateError, match=message):
            bad()


def toy(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Two places in random order: one holds (label, 1), the other (attribute, −1), both ±1."""
    g = torch.Generator().manual_seed(seed)
    label, attribute, first = (torch.randint(0, 2, (n,), generator=g) for _ in range(3))
    core = torch.stack([2.0 * label - 1, torch.ones(n)], 1)
    rest = torch.stack([2.0 * attribute - 1, -torch.ones(n)], 1)
    tokens = torch.stack([core, rest], 1)
    tokens = torch.where(first[:, None, None] > 0, tokens, tokens.flip(1))
    return tokens.transpose(1, 2)[..., None], label  # [n, 2, 2, 1]


def accuracy_after_training(pool: nn.Module, width: int) -> float:
    net = nn.Sequential(pool, nn.Linear(width, 2))
    optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
    x, y = toy(256, 0)
    for _ in range(200):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()
    test_x, test_y = toy(2000, 1)
    with torch.no_grad():
        return float((net(test_x).argmax(1) == test_y).float().mean())


def test_attention_separates_what_the_mean_mixes() -> None:
    """Label and attribute share a channel and differ in their place; GAP sees only their sum (75 % at
    best)."""
    torch.manual_seed(0)
    assert accuracy_after_training(GAP(), 2) < 0.78
    assert accuracy_after_training(AttentionPool(2, queries=4, heads=1), 2) > 0.99


# -- Jetley --------------------------------------------------------------------------------


def test_jetley_by_hand() -> None:
    # tokens 0 and 2 in one channel: g = 1, scores 0 and 2, weights 1/(1+e²) and e²/(1+e²)
    maps = torch.tensor([[[[0.0, 2.0]]]])
    pool = JetleyPool(1)
    e2 = torch.tensor(2.0).exp()
    assert pool(maps).item() == pytest.approx(float(2 * e2 / (1 + e2)))
    assert pool.attention(maps)[0].flatten().tolist() == pytest.approx([float(1 / (1 + e2)), float(e2 / (1 + e2))])


@pytest.mark.parametrize("compatibility", ["dot", "parametric"])
def test_jetley_properties(compatibility: str) -> None:
    pool, maps = JetleyPool(8, compatibility), feature_map()
    assert torch.allclose(pool(maps), pool(shuffled(maps)), atol=1e-5)
    constant = torch.randn(2, 8, 1, 1).expand(2, 8, 3, 3)
    assert torch.allclose(pool(constant), constant[:, :, 0, 0], atol=1e-5)
    assert torch.allclose(pool.attention(maps)[0].sum((1, 2)), torch.ones(3), atol=1e-5)


def test_jetley_over_layers() -> None:
    pool = JetleyPool([4, 8], "parametric")
    result = pool([feature_map(c=4, h=10, w=8), feature_map()])
    assert result.shape == (3, pool.out_dim) == (3, 16)
    assert [w.shape for w in pool.attention([feature_map(c=4, h=10, w=8), feature_map()])] == [(3, 10, 8), (3, 5, 4)]
    with pytest.raises(FoveateError, match="channels"):
        pool([feature_map(), feature_map()])
    with pytest.raises(FoveateError, match="compatibility"):
        JetleyPool(8, "cosine")


# -- AIM, EP, GAP, CLS ---------------------------------------------------------------------


@pytest.mark.parametrize("pool", [AIMPool(24, heads=12), AIMPool(24, heads=3, queries=2), EPPool(24, queries=8)])
def test_probes_do_not_feel_the_order_of_places(pool: nn.Module) -> None:
    maps = feature_map(c=24)
    with torch.no_grad():
        pool.queries.normal_()
    for mode in (True, False):
        pool.train(mode)
        assert torch.allclose(pool(maps), pool(shuffled(maps)), atol=1e-4)
    assert torch.allclose(pool(maps), pool(maps.flatten(2).transpose(1, 2)), atol=1e-5)
    weights = pool.attention(maps)
    assert torch.allclose(weights.sum((-2, -1)), torch.ones(weights.shape[:-2]), atol=1e-5)


def test_ep_with_zero_queries_is_the_mean_of_the_values() -> None:
    pool, maps = EPPool(24, queries=8, norm=False), feature_map(c=24)
    with torch.no_grad():
        pool.queries.zero_()
    assert torch.allclose(pool(maps), pool.value(GAP()(maps)), atol=1e-5)


def test_ep_chunk_m_is_pooled_by_query_m() -> None:
    pool, maps = EPPool(24, queries=8, norm=False), feature_map(c=24)
    with torch.no_grad():
        pool.queries.normal_()
    tokens = maps.flatten(2).transpose(1, 2)
    values = pool.value(tokens)
    for m in range(8):
        weights = (tokens @ pool.queries[m] / 24**0.5).softmax(1)
        wanted = (weights[:, :, None] * values[:, :, 3 * m : 3 * m + 3]).sum(1)
        assert torch.allclose(pool(maps)[:, 3 * m : 3 * m + 3], wanted, atol=1e-5)


def test_aim_is_the_equations_written_out() -> None:
    pool, maps = AIMPool(6, heads=2, queries=3), feature_map(c=6)
    with torch.no_grad():
        pool.queries.normal_()
    tokens = maps.flatten(2).transpose(1, 2)
    flat = tokens.reshape(-1, 6)
    normal = (tokens - flat.mean(0)) / (flat.var(0, unbiased=False) + 1e-6).sqrt()
    keys, values = pool.key(normal), pool.value(normal)
    wanted = torch.zeros(3, 6)
    for q in range(3):
        for head in range(2):
            part = slice(3 * head, 3 * head + 3)
            weights = (keys[..., part] @ pool.queries[q, part] / 3**0.5).softmax(1)
            wanted[:, part] += (weights[..., None] * values[..., part]).sum(1) / 3
    assert torch.allclose(pool(maps), wanted, atol=1e-5)
    assert not any(name.startswith("norm") for name, _ in pool.named_parameters())


def test_probe_errors_and_simple_pools() -> None:
    with pytest.raises(FoveateError, match="12 heads"):
        AIMPool(512)
    with pytest.raises(FoveateError, match="32 queries"):
        EPPool(100)
    with pytest.raises(FoveateError, match="CLSPool"):
        CLSPool()(feature_map())
    tokens = torch.randn(2, 5, 3)
    assert torch.equal(CLSPool()(tokens), tokens[:, 0])
    assert torch.allclose(GAP()(tokens), tokens.mean(1))
    assert torch.allclose(GAP()(feature_map()), feature_map().mean((2, 3)), atol=1e-6)


@pytest.mark.parametrize(
    "pool", [AttentionPool(24, heads=3), AttentionPool(24, heads=3, residual=True, norm=True, bias=True),
             JetleyPool(24, "parametric"), AIMPool(24), EPPool(24, queries=8)],
)  # fmt: skip
def test_gradients_reach_every_parameter(pool: nn.Module) -> None:
    pool(feature_map(c=24)).square().sum().backward()
    for name, parameter in pool.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
