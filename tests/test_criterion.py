"""The criterion: names, options, references, regularisers, state, and what it refuses."""

from __future__ import annotations

import copy
import functools
import io
from collections.abc import Iterator
from typing import Any

import jaxtyping
import pytest
import torch
from torch import Tensor, nn

from vicinal.criterion import REGULARISERS, Criterion, Learned
from vicinal.errors import InputError, NotFinite, UnknownName
from vicinal.mining import MINERS
from vicinal.objectives import ALIASES, OBJECTIVES, contrastive, multi_similarity, traits_of
from vicinal.pairs import GEOMETRIES, Geometry, cosine, to_ball
from vicinal.references import Batch, Cover, Memory, Proxies


@pytest.fixture
def unchecked() -> Iterator[None]:
    """Turn the run-time check of shapes off, which is there in tests only and would speak before our own errors."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def batch(n: int = 12, d: int = 5, classes: int = 3, seed: int = 0) -> tuple[Tensor, Tensor]:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed)), torch.arange(n) % classes


def test_is_objective_of_geometry_of_references() -> None:
    embeddings, labels = batch()
    same = labels[:, None] == labels
    expected = multi_similarity(cosine(embeddings, embeddings), same & ~torch.eye(12, dtype=torch.bool), ~same)
    assert torch.equal(Criterion("multi_similarity")(embeddings, labels), expected)


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_every_name_makes_a_criterion_with_the_references_of_its_paper(name: str) -> None:
    traits = traits_of(OBJECTIVES[name])
    embeddings, labels = batch(d=5)
    if traits.usual == "one_hot":
        embeddings = embeddings[:, :3].softmax(1)
    criterion = Criterion(name, classes=3, dim=embeddings.shape[1])
    assert criterion.name == name
    assert criterion.references[0].kind == traits.usual
    assert criterion.geometry.name == traits.geometry
    assert criterion.regularisers == dict(traits.regularisers)
    assert criterion(embeddings, labels).isfinite()


@pytest.mark.parametrize("alias", sorted(ALIASES))
def test_aliases(alias: str) -> None:
    assert Criterion(alias).objective is OBJECTIVES[ALIASES[alias]]


def test_an_unknown_name_gets_a_suggestion() -> None:
    with pytest.raises(UnknownName, match=r"Unknown loss 'tripplet'; did you mean 'triplet'\? Choose from: .*circle"):
        Criterion("tripplet")
    with pytest.raises(UnknownName, match=r"Unknown geometry 'cosin'; did you mean 'cosine'\?"):
        Criterion("contrastive", geometry="cosin")
    with pytest.raises(UnknownName, match=r"Unknown regulariser 'embeding_norm'; did you mean 'embedding_norm'\?"):
        Criterion("contrastive", regularisers={"embeding_norm": 1.0})


def test_options_are_checked_when_the_criterion_is_made() -> None:
    with pytest.raises(UnknownName, match=r"Unknown option of multi_similarity 'treshold'; did you mean 'threshold'\?"):
        Criterion("multi_similarity", treshold=0.3)
    with pytest.raises(InputError, match=r"triplet: margin must be at least 0; got -0\.1"):
        Criterion("triplet", margin=-0.1)
    with pytest.raises(InputError, match=r"nt_xent: temperature must be above 0; got 0"):
        Criterion("nt_xent", temperature=0)
    with pytest.raises(InputError, match=r"triplet: margin must be a number, such as 0.1; got nan"):
        Criterion("triplet", margin=float("nan"))


@pytest.mark.usefixtures("unchecked")
def test_an_unknown_normalisation() -> None:
    with pytest.raises(UnknownName, match=r"Unknown normalisation 'spher'; did you mean 'sphere'\?"):
        Criterion("contrastive", normalise="spher")  # type: ignore[arg-type]


def test_a_proxy_loss_without_proxies_says_what_it_needs() -> None:
    with pytest.raises(InputError, match=r"proxy_anchor compares items with proxies: pass classes= and dim="):
        Criterion("proxy_anchor", classes=3)


def test_the_direction_of_the_geometry_must_fit() -> None:
    with pytest.raises(InputError, match=r"contrastive is written for similarities; .*Use one of: cosine, dot\."):
        Criterion("contrastive", geometry="euclidean")
    with pytest.raises(InputError, match=r"triplet is written for distances; .* cosine_distance, euclidean, squared"):
        Criterion("triplet", geometry="cosine")
    with pytest.raises(InputError, match="normalise='ball' would have no effect"):
        Criterion("contrastive", normalise="ball")


def test_references_of_no_kind_are_refused() -> None:
    with pytest.raises(InputError, match="contrastive needs references to compare items with; got an empty list"):
        Criterion("contrastive", references=[])
    with pytest.raises(InputError, match=r"contrastive does not run on Linear references.*Use: batch, proxies"):
        Criterion("contrastive", references=nn.Linear(2, 2))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("embeddings", "labels", "message"),
    [
        (torch.zeros(4), torch.zeros(4).long(), r"embeddings must be .* of shape \[4\]"),
        (torch.zeros(4, 2, 2), torch.zeros(4).long(), r"embeddings must be .* of shape \[4, 2, 2\]"),
        (torch.zeros(4, 2).long(), torch.zeros(4).long(), r"embeddings must be a floating-point tensor"),
        (torch.zeros(4, 2), torch.zeros(4), r"labels must be a 1-D tensor of integers, one per embedding"),
        (torch.zeros(4, 2), torch.zeros(4, 1).long(), r"labels must be a 1-D tensor"),
        (torch.zeros(4, 2), torch.zeros(5).long(), r"4 embeddings but 5 labels"),
    ],
)
def test_bad_batches(embeddings: Tensor, labels: Tensor, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Criterion("contrastive")(embeddings, labels)


def test_nan_embeddings_name_their_rows() -> None:
    embeddings, labels = batch()
    embeddings[7, 2] = torch.nan
    with pytest.raises(NotFinite, match=r"1 of 12 embeddings hold NaN or infinity \(first rows: \[7\]\)"):
        Criterion("contrastive")(embeddings, labels)


@pytest.mark.usefixtures("unchecked")
def test_ids_of_the_wrong_length() -> None:
    with pytest.raises(InputError, match=r"ids must name one item per label; got shape \[3\] for 12 labels"):
        Criterion("contrastive")(*batch(), ids=torch.arange(3))


@pytest.mark.usefixtures("unchecked")
def test_labels_in_bytes_are_numbers_and_not_a_mask() -> None:
    embeddings, labels = batch()
    criterion = Criterion("margin", boundary=Learned(1.2, classes=3))
    assert torch.equal(criterion(embeddings, labels.byte()), criterion(embeddings, labels))


def test_learned_for_all() -> None:
    criterion = Criterion("margin", boundary=Learned(1.2), margin=0.3)
    assert torch.equal(criterion(*batch()), Criterion("margin", boundary=1.2, margin=0.3)(*batch()))
    criterion(*batch()).backward()
    assert criterion.learned["boundary"].grad.shape == ()
    assert criterion.learned["boundary"].grad != 0
    (group,) = criterion.parameter_groups()
    assert group["name"] == "options"
    assert group["params"][0] is criterion.learned["boundary"]


def test_learned_per_class() -> None:
    embeddings, labels = batch()
    criterion = Criterion("margin", boundary=Learned(1.2, classes=5))
    assert torch.equal(criterion(embeddings, labels), Criterion("margin")(embeddings, labels))
    criterion(embeddings, labels).backward()
    gradient = criterion.learned["boundary"].grad
    assert gradient.shape == (5,)
    assert gradient[:3].ne(0).any()
    assert not gradient[3:].any()
    with torch.no_grad():
        criterion.learned["boundary"][1] = 0.4
    assert not torch.equal(criterion(embeddings, labels), Criterion("margin")(embeddings, labels))


@pytest.mark.parametrize("shift", [3, -1, 2**40])
def test_learned_per_class_needs_labels_in_range(shift: int) -> None:
    embeddings, labels = batch()
    with pytest.raises(InputError, match=rf"Labels must be 0\.\.2 for 3 classes; got {shift}\.\."):
        Criterion("margin", boundary=Learned(1.2, classes=3))(embeddings, labels + shift)


def test_an_option_that_is_one_number_is_not_learned_per_class() -> None:
    """One scale per anchor would broadcast against the sums per anchor and count everything n times."""
    with pytest.raises(InputError, match="positive_scale of multi_similarity is one number for all"):
        Criterion("multi_similarity", positive_scale=Learned(2.0, classes=3))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("multi_similarity", "positive_scale"),
        ("multi_similarity", "threshold"),
        ("nt_xent", "temperature"),
        ("proxy_anchor", "scale"),
        ("proxy_anchor", "margin"),
        ("circle", "margin"),
        ("triplet", "margin"),
        ("cosface", "margin"),
    ],
)
def test_other_options_may_be_learned(name: str, option: str) -> None:
    start = 0.4
    learned = Criterion(name, classes=3, dim=5, **{option: Learned(start)})
    fixed = Criterion(name, classes=3, dim=5, **{option: start})
    loss = learned(*batch())
    torch.testing.assert_close(loss, fixed(*batch()))
    loss.backward()
    gradient = learned.learned[option].grad
    nudge = 1e-3
    above, below = (Criterion(name, classes=3, dim=5, **{option: start + side * nudge}) for side in (1, -1))
    if name == "circle":  # its two factors depend on the margin but are held constant
        assert gradient.isfinite()
        return
    embeddings, labels = batch()
    slope = (above.double()(embeddings.double(), labels) - below.double()(embeddings.double(), labels)) / (2 * nudge)
    assert gradient.item() == pytest.approx(slope.item(), rel=0.02, abs=1e-4)


def test_terms_are_weighted() -> None:
    embeddings, labels = batch()
    proxies = Proxies(3, 5)
    both = Criterion("contrastive_c1", references=[(proxies, 1.0), (Batch(), 0.1)])
    parts = [Criterion("contrastive_c1", references=one)(embeddings, labels) for one in (proxies, Batch())]
    torch.testing.assert_close(both(embeddings, labels), parts[0] + 0.1 * parts[1])
    plain = Criterion("contrastive_c1", references=[proxies, Batch()])
    torch.testing.assert_close(plain(embeddings, labels), parts[0] + parts[1])


def test_regularisers_replace_those_of_the_paper() -> None:
    embeddings, labels = batch()
    bare = Criterion("n_pair", regularisers={})(embeddings, labels)
    norm = embeddings.norm(dim=1).mean()
    torch.testing.assert_close(Criterion("n_pair")(embeddings, labels), bare + 0.02 * norm)
    torch.testing.assert_close(
        Criterion("n_pair", regularisers={"embedding_norm": 3.0})(embeddings, labels), bare + 3 * norm
    )
    assert set(REGULARISERS) == {"centre_merging", "embedding_norm"}


def test_regularisers_see_raw_embeddings() -> None:
    embeddings, labels = batch()
    criterion = Criterion("margin", regularisers={"embedding_norm": 1.0})
    assert (criterion(2 * embeddings, labels) - criterion(embeddings, labels)).item() == pytest.approx(
        embeddings.norm(dim=1).mean().item(), rel=1e-4
    )


def squares(matrix: Tensor, positive: Tensor, negative: Tensor, *, weight: float = 1.0) -> Tensor:
    return weight * (matrix[negative].square().mean() - matrix[positive].mean())


def test_a_plain_function_is_an_objective() -> None:
    embeddings, labels = batch()
    criterion = Criterion(squares, weight=2.0)
    assert criterion.name == "squares"
    torch.testing.assert_close(criterion(embeddings, labels), 2 * Criterion(squares)(embeddings, labels))
    assert Criterion(squares, geometry="euclidean", references=Proxies(3, 5))(embeddings, labels).isfinite()
    with pytest.raises(UnknownName, match=r"Unknown option of squares 'wait'"):
        Criterion(squares, wait=1.0)


def test_a_partial_and_a_function_with_any_options() -> None:
    embeddings, labels = batch()
    bound = functools.partial(contrastive, threshold=0.2)
    assert torch.equal(
        Criterion(bound)(embeddings, labels), Criterion("contrastive", threshold=0.2)(embeddings, labels)
    )

    def anything(matrix: Tensor, positive: Tensor, negative: Tensor, **options: float) -> Tensor:
        return contrastive(matrix, positive, negative, **options)

    free = Criterion(anything, threshold=0.2)
    assert torch.equal(free(embeddings, labels), Criterion(bound)(embeddings, labels))


def test_a_plain_function_is_a_miner() -> None:
    def nothing(matrix: Tensor, positive: Tensor, negative: Tensor) -> tuple[Tensor, Tensor]:
        return positive & False, negative & False

    assert Criterion("contrastive", mining=nothing)(*batch()) == 0


def test_a_miner_is_told_what_it_asks_for() -> None:
    told: dict[str, Any] = {}

    def ask(
        matrix: Tensor, positive: Tensor, negative: Tensor, *, similarity: bool, dim: int, generator: Any, keep: float
    ) -> tuple[Tensor, Tensor]:
        told.update(similarity=similarity, dim=dim, generator=generator, keep=keep)
        return positive, negative

    criterion = Criterion("margin", mining=ask, mining_options={"keep": 0.5})
    criterion(*batch())
    assert told == {"similarity": False, "dim": 5, "generator": criterion.generator, "keep": 0.5}
    Criterion("contrastive", mining=ask, mining_options={"keep": 0.5})(*batch())
    assert told["similarity"] is True


def test_mining_comes_before_the_objective() -> None:
    embeddings, labels = batch()
    same = labels[:, None] == labels
    matrix = cosine(embeddings, embeddings)
    kept = MINERS["valid_triplets"](matrix, same & ~torch.eye(12, dtype=torch.bool), ~same, margin=0.05)
    criterion = Criterion("multi_similarity", mining="valid_triplets", mining_options={"margin": 0.05})
    assert torch.equal(criterion(embeddings, labels), multi_similarity(matrix, *kept))


def test_the_matrix_is_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, ...]] = []

    def counting(anchors: Tensor, references: Tensor) -> Tensor:
        calls.append((len(anchors), len(references)))
        return cosine(anchors, references)

    monkeypatch.setitem(GEOMETRIES, "cosine", Geometry("cosine", counting, similarity=True))
    criterion = Criterion("multi_similarity", mining="valid_triplets", references=[Batch(), Memory(20, 5)])
    criterion.watch = True
    criterion(*batch())
    assert calls == [(12, 12), (12, 12)]


def test_watch_fills_the_statistics() -> None:
    criterion = Criterion("multi_similarity", mining="hard")
    criterion(*batch())
    assert criterion.statistics == {}
    criterion.watch = True
    embeddings, labels = batch()
    criterion(embeddings, labels)
    matrix, same = cosine(embeddings, embeddings), labels[:, None] == labels
    off = ~torch.eye(12, dtype=torch.bool)
    assert criterion.statistics == pytest.approx(
        {
            "kept_positives": 1 / 3,
            "kept_negatives": 1 / 8,
            "hardest_positive": matrix[same & off].min().item(),
            "hardest_negative": matrix[~same].max().item(),
        }
    )


@pytest.mark.parametrize("normalise", ["sphere", "ball", "none"])
@pytest.mark.parametrize("geometry", ["dot", "euclidean", "squared_euclidean"])
def test_normalisation(geometry: str, normalise: Any) -> None:
    """Anchors and references alike are brought to the sphere or the ball, or left as they are."""
    embeddings, labels = batch()
    bring = {"sphere": nn.functional.normalize, "ball": to_ball, "none": lambda x: x}[normalise]
    objective = "contrastive" if geometry == "dot" else "triplet"
    proxies = Proxies(3, 5)
    proxies.assign(torch.randn(3, 5, generator=torch.Generator().manual_seed(1)))
    criterion = Criterion(objective, geometry=geometry, normalise=normalise, references=proxies)
    matrix = GEOMETRIES[geometry].compare(bring(embeddings), bring(proxies.vectors))
    same = labels[:, None] == torch.arange(3)
    torch.testing.assert_close(criterion(embeddings, labels), OBJECTIVES[objective](matrix, same, ~same))


def test_by_default_distances_are_on_the_sphere_and_inner_products_are_raw() -> None:
    assert Criterion("triplet").normalise == "sphere"
    assert Criterion("n_pair").normalise == "none"


def test_state_round_trip_through_a_file() -> None:
    def fresh(seed: int) -> Criterion:
        cover = Cover(3, 5)
        cover.choose(torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(seed)))
        return Criterion(
            "margin",
            references=[Proxies(3, 5, seed=seed), Memory(20, 5), cover],
            mining="random",
            boundary=Learned(1.0 + seed / 10, classes=3),
            seed=seed,
        )

    first, second = fresh(0), fresh(1)
    for seed in range(3):
        first(*batch(seed=seed))
    buffer = io.BytesIO()
    torch.save(first.state_dict(), buffer)
    buffer.seek(0)
    second.load_state_dict(torch.load(buffer, weights_only=True))
    for seed in range(3, 6):
        assert torch.equal(first(*batch(seed=seed)), second(*batch(seed=seed)))


def test_seeds_and_copies() -> None:
    losses = [Criterion("contrastive", mining="random", seed=seed)(*batch()).item() for seed in (0, 0, 1)]
    assert losses[0] == losses[1] != losses[2]
    criterion = Criterion("contrastive", mining="random")
    criterion(*batch())
    twin = copy.deepcopy(criterion)
    assert torch.equal(twin(*batch()), criterion(*batch()))


def test_draws_go_on_from_step_to_step() -> None:
    criterion = Criterion("contrastive", mining="random")
    assert len({criterion(*batch()).item() for _ in range(4)}) > 1


def test_huge_labels_on_a_batch_and_a_memory() -> None:
    embeddings, labels = batch()
    for references in (Batch, lambda: Memory(30, 5)):
        small, huge = (Criterion("multi_similarity", references=references()) for _ in range(2))
        for _ in range(2):
            assert torch.equal(huge(embeddings, labels + 2**40), small(embeddings, labels))


@pytest.mark.parametrize("name", ["proxy_gram", "proxy_repulsion", "soft_triple"])
def test_past_anchors_count_as_items_of_the_batch_without_gradient(name: str) -> None:
    proxies = Proxies(3, 5, per_class=2)
    options: dict[str, Any] = {"references": [proxies], "regularisers": {}}
    remembering, plain = Criterion(name, past_anchors=Memory(12, 5), **options), Criterion(name, **options)
    (first, labels), (second, _) = batch(), batch(seed=1)
    assert torch.equal(remembering(first, labels), plain(first, labels))  # nothing is remembered yet
    leaf = second.clone().requires_grad_()
    found = remembering(leaf, labels)
    both = torch.cat([second, first]).requires_grad_()
    expected = plain(both, torch.cat([labels, labels]))
    torch.testing.assert_close(found, expected)
    found.backward()
    expected.backward()
    torch.testing.assert_close(leaf.grad, both.grad[:12])
    restored = Criterion(name, past_anchors=Memory(12, 5), **options)
    restored.load_state_dict(remembering.state_dict())
    torch.testing.assert_close(restored(first, labels), remembering(first, labels))


def test_past_anchors_need_references_that_stand_for_classes() -> None:
    with pytest.raises(InputError, match="proxies or a cover"):
        Criterion("triplet", past_anchors=Memory(4, 5))
