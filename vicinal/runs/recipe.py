"""Recipes: everything that defines a run, one TOML file; files are laid over each other."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Literal

import tomli_w
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from vicinal._util.code import code_hash, is_code, known_name, name_of, short_name
from vicinal._util.reading import read_toml
from vicinal._util.secrets import has_secret, masked
from vicinal.backbones import BACKBONES
from vicinal.data import PIPELINES, PROTOCOLS, READERS, Dataset, Split, split
from vicinal.data.splits import USUAL_SHARE
from vicinal.errors import InputError, UnknownName, look_up
from vicinal.mining import MINERS, find_miner
from vicinal.objectives import ALIASES, OBJECTIVES, Traits, find_objective, options_of, traits_or_default
from vicinal.recipes import find_recipe
from vicinal.sampling import SAMPLERS
from vicinal.training.settings import CCP, CCP_SYMBOLS, MOST, Count, Items, Positive, Settings

__all__ = ["SCORES", "Recipe", "flat", "laid_over", "method_name", "read_tables", "without_choice_on_test"]

SCORES = ("P@1", "P@R", "MAP@R")  # that steps may be chosen by, and that a record has for every class

# Names of earlier versions, which recipes and journals still hold.
FORMERLY = {"metric": "score"}
# Settings that came later, with what was done before there were any: keys of earlier journals lack them.
LATER: dict[str, Any] = {
    "cover": 0,
    "cover_pool": 12,
    "cover_every": 100,
    "hierarchy": 0,
    "hierarchy_weight": 0.1,
    "head_bias": True,
    "lora_rank": None,
    "prefixes": [],
    "training.betas": [0.9, 0.999],
    "training.decay_before_clipping": False,
    "training.schedule_patience": 5,
    "ccp.pool_order": "drawn",
    "ccp.proximal_decay": 1.0,
}
# What a table of options belongs to: another name in a later file starts its options anew.
OPTIONS_OF = {"loss_options": "loss", "mining_options": "mining", "backbone_options": "backbone"}
# Settings that name code, which may be the user's own: what it is, and the names that come with vicinal.
CODE: dict[str, tuple[str, Mapping[str, Any]]] = {
    "data": ("dataset", READERS),
    "loss": ("loss", {**OBJECTIVES, **ALIASES}),
    "mining": ("miner", MINERS),
    "backbone": ("backbone", BACKBONES),
}


def _one_of(kind: str, table: Mapping[str, Any]) -> AfterValidator:
    """Return a check that a name is in a table."""

    def known(name: str) -> str:
        look_up(kind, name, table)
        return name

    return AfterValidator(known)


def _code(setting: str) -> BeforeValidator:
    """Return a check that turns an object into its name, and that a name may stand for something."""
    kind, table = CODE[setting]

    def named(given: Any) -> Any:
        if given is None:
            return None
        name = name_of(kind, given, table)
        return name if setting == "data" else known_name(kind, name, table)  # data may be a path, too

    return BeforeValidator(named)


def _scored(settings: Settings) -> Settings:
    """Check that the score to choose by is one that is computed."""
    look_up("score", settings.score, dict.fromkeys(SCORES))
    return settings


def _without_secret(address: str) -> str:
    """Check that an address can be written into records, cards and reports."""
    if has_secret(address):
        raise ValueError(
            f"the address {masked(address)} holds a password or a token: fetch the file yourself, and give its path"
        )
    return address


class Recipe(BaseModel):
    """What to train, on which data, in what batches, with which loss, and how it is scored.

    Attributes:
        data: A dataset's name or path; None where the data is given by hand.
        protocol: How classes are divided; see `vicinal.data.split`.
        fold: Which fold validates, for protocols with folds.
        folds: How many there are, if not the protocol's own number.
        validation: Share of the training classes that validate, where the protocol draws them.
        select_on_test: Choose the step by the test classes, which leaks; for comparison with papers that did.
        skip_bad: Leave out images that cannot be read instead of stopping.
        loss: A name (see `vicinal losses`), a function, or one as "my_module:my_loss" or "mine.py:my_loss"; so it is
            with `mining`, `backbone` and `data` (a function that returns a `Dataset`).
        loss_options: Its options.
        mining: A miner.
        mining_options: Its options.
        memory: Embeddings of past batches to compare with beside the batch (XBM); 0 for none.
        memory_start: Steps before the memory begins to fill.
        prefixes: Lengths to which embeddings may be cut afterwards; the loss is the mean over them and the whole.
        cover: Points of each class, picked from the data by greedy k-Center, to compare with beside the batch; 0 for
            none.
        cover_pool: Items of each class among which they are looked for.
        cover_every: Steps between two searches.
        hierarchy: Groups of classes whose mean proxies are compared with beside the proxies (HPL), at most half as
            many as there are classes; 0 for none.
        hierarchy_weight: Of the loss on groups; that on classes weighs 1.
        proxies_per_class: Where the loss compares with proxies.
        proxy_multiplier: Learning rate of proxies over that of the network.
        ccp: Chance-constrained proxies: "code", "paper" or a table of `CCP`; its own proxies count, not those above.
        backbone: A name in `vicinal.backbones.BACKBONES`.
        backbone_options: Its options.
        weights: "imagenet", a path or a URL; None starts from random weights.
        start: Folder of a saved embedder of the same shape, whose weights (head included) to start from.
        dim: Length of the embeddings; None for the backbone's features as they are. Losses on class probabilities have
            one per training class, whatever this says.
        head_start: Whether the head starts "random" or as the principal axes of the training classes' features ("pca");
            None chooses PCA where a pretrained network stands still and the embeddings are no longer than its features
            (and the head has a bias, to centre them).
        head_bias: Whether the head's linear map has a bias.
        pooling: "average", "max" or "both".
        normalisation: Of embeddings, in training and after: "sphere", "ball", or None for none. Of
            class probabilities it is the soft-max.
        images: Name of the pair of transforms, by default one that fits the backbone.
        sampler: "classes", "random" or "hard-classes".
        classes_per_batch: Classes in a batch. `batch = "16x4"` says this and the next at once.
        samples_per_class: Items of each.
        freeze: Compute the backbone's features once and train only the head on them; "trunk" does so with the maps
            before the last `train_stages`, and trains those too.
        copies: Augmented versions of each training item to compute features of.
        train_stages: How many of the backbone's last stages are trained; None for all.
        lora_rank: Rank of the small matrices that are trained beside the network's linear maps, which then stand still
            (LoRA); merged into them in the end. None trains the network itself.
        freeze_batch_norm: Whether batch norm keeps its statistics.
        training: How long, how fast, how often scored.

    Example:
        >>> recipe = Recipe(loss="triplet").changed(steps=50, margin=0.2)
        >>> recipe.training.steps, recipe.value("margin"), recipe.method
        (50, 0.2, 'triplet')
    """

    # Numbers of a recipe are finite, but an option of a loss may be infinite, which TOML can say.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, ser_json_inf_nan="constants")

    data: Annotated[str | None, _code("data")] = None
    protocol: Annotated[str, _one_of("protocol", PROTOCOLS)] = "fixed-validation"
    fold: Count | None = None
    folds: Annotated[int, Field(ge=2, le=10**6)] | None = None
    validation: Annotated[float, Field(gt=0, lt=1)] = USUAL_SHARE
    select_on_test: bool = False
    skip_bad: bool = False
    loss: Annotated[str, _code("loss")] = "multi_similarity"
    loss_options: dict[str, Any] = Field(default_factory=dict)
    mining: Annotated[str | None, _code("mining")] = None
    mining_options: dict[str, Any] = Field(default_factory=dict)
    memory: Count = 0
    memory_start: Count = 0
    prefixes: tuple[Annotated[int, Field(ge=1, le=10**6)], ...] = ()
    cover: Annotated[int, Field(ge=0, le=10**6)] = 0
    cover_pool: Items = 12
    cover_every: Annotated[int, Field(ge=1, le=MOST)] = 100
    hierarchy: Annotated[int, Field(ge=0, le=10**6)] = 0
    hierarchy_weight: Positive = 0.1
    proxies_per_class: Items = 1
    proxy_multiplier: Positive = 100.0
    ccp: CCP | None = None
    backbone: Annotated[str, _code("backbone")] = "convnet"
    backbone_options: dict[str, Any] = Field(default_factory=dict)
    weights: Annotated[str, AfterValidator(_without_secret)] | None = None
    start: str | None = None
    dim: Items | None = 64
    head_start: Literal["random", "pca"] | None = None
    head_bias: bool = True
    pooling: Literal["average", "max", "both"] = "average"
    normalisation: Literal["sphere", "ball"] | None = "sphere"
    images: Annotated[str, _one_of("pair of transforms", PIPELINES)] | None = None
    sampler: Annotated[str, _one_of("sampler", SAMPLERS)] = "classes"
    classes_per_batch: Items = 8
    samples_per_class: Annotated[int, Field(ge=1, le=MOST)] = 4
    freeze: bool | Literal["trunk"] = False
    copies: Items = 4
    train_stages: Count | None = None
    lora_rank: Annotated[int, Field(ge=1, le=4096)] | None = None
    freeze_batch_norm: bool = False
    training: Annotated[Settings, AfterValidator(_scored)] = Field(default_factory=Settings)

    @classmethod
    def read(cls, *sources: str | Path, **changes: Any) -> Recipe:
        """Read recipes laid over each other: what a later one says counts, and `changes` most of all.

        Args:
            *sources: Names of recipes that come with vicinal ("thesis/cub-bn_inception"), or paths of TOML files.
            **changes: As `changed` takes them.
        """
        return cls.of(read_tables(*sources)).changed(changes)

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Recipe:
        """Make a recipe from names and values; settings of the training loop may stand among them.

        Every mistake is reported at once. TOML has no word for None: the string "none" stands for it.

        Example:
            >>> Recipe.of({"loss": "triplet", "steps": 50}).training.steps
            50
        """
        return cls().changed(values)

    def changed(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> Recipe:
        """Return the recipe with other values.

        A name is one of a recipe, of its training settings, of a table ("loss_options.margin"), or of an option of the
        loss or miner by itself ("margin"). A table replaces the one that is there, but for `training`. A time
        (`seconds`) without `steps` beside it is the whole budget.

        Example:
            >>> Recipe().changed({"loss_options.threshold": 0.7, "learning_rate": 0.01}).loss_options
            {'threshold': 0.7}
        """
        tables = self.model_dump()
        loop = tables.pop("training")
        wrong: list[str] = []
        given = _simple_names_last(laid_over({"data": self.data}, _by_name({**(values or {}), **named})))
        if isinstance(given.get("on"), Mapping):
            del given["on"]  # of data that the recipe does not name
        for table, owner in OPTIONS_OF.items():
            if given.get(owner, tables[owner]) != tables[owner]:  # options of another loss would not fit
                tables[table] = {}
        tables = without_choice_on_test(tables, given)
        for name, value in given.items():
            wrong += _put(name, _with_none(value), tables, loop)
        if _names_time_alone(given) and loop["seconds"] is not None:
            loop["steps"] = None
        try:
            made = Recipe(**tables, training=loop)
        except ValidationError as error:
            wrong += [_sentence(details) for details in error.errors()]
        if wrong:
            raise InputError("The recipe has mistakes:\n" + "\n".join(f"  - {text}" for text in wrong))
        return made

    def value(self, name: str) -> Any:
        """Return the value of a setting, or the default of an option that the recipe does not give.

        Example:
            >>> Recipe(loss="triplet").value("loss_options.margin"), Recipe().value("steps")
            (0.1, 1000)
        """
        table, _, option = name.rpartition(".")
        known: dict[str, Any] = {**self.model_dump(), **self.training.model_dump(), "batch": self.batch}
        if table:
            inside = known.get(table)
            known = {**self._defaults(table), **(inside if isinstance(inside, dict) else {})}
        elif name not in known:
            known |= self._defaults("mining_options") | self.mining_options
            known |= self._defaults("loss_options") | self.loss_options
        if option not in known:
            raise UnknownName(f"setting in {table}" if table else "setting", option, known)
        return known[option]

    def toml(self) -> str:
        """Write the recipe as TOML that `read` reads back.

        Example:
            >>> print(Recipe(loss="triplet", loss_options={"margin": 0.1}).toml().splitlines()[4])
            loss = "triplet"
        """
        values, usual = self.model_dump(mode="json"), Recipe().model_dump(mode="json")
        plain = {name: _without_none(value, usual[name]) for name, value in values.items()}
        return tomli_w.dumps({name: value for name, value in plain.items() if value is not None and value != {}})

    def key(self, data: str = "", name: str = "") -> str:
        """Return a hash of all that a run's result depends on, the same on every machine.

        Args:
            data: Hash of the dataset's content; where the files lie does not count.
            name: What tables call the run.
        """
        values = self.model_dump(mode="json", exclude={"data"})
        if values["weights"] is not None:
            values["weights"] = Path(values["weights"]).name
        if own := {Path(name).name: digest for name, digest in self.code().items() if name != self.data}:
            values["code"] = own
        for setting_path, usual in LATER.items():
            table, _, setting = setting_path.rpartition(".")
            holder = values[table] if table else values
            if holder is not None and holder[setting] == usual:
                del holder[setting]
        return hashlib.sha256(json.dumps([name, data, values], sort_keys=True).encode()).hexdigest()[:16]

    def code(self) -> dict[str, str]:
        """Return the SHA-256 of all code that the recipe names and that does not come with vicinal, by its name."""
        hashes = {
            name: code_hash(kind, name, table)
            for setting, (kind, table) in CODE.items()
            if (name := getattr(self, setting)) is not None and (setting != "data" or is_code(name))
        }
        return {name: digest for name, digest in hashes.items() if digest is not None}

    def split(self, data: Dataset) -> Split:
        """Divide data as the protocol, seed and fold have it."""
        return split(
            data,
            self.protocol,
            seed=self.training.seed,
            fold=self.fold,
            folds=self.folds,
            validation=self.validation,
        )

    @property
    def batch(self) -> str:
        """Classes in a batch and items of each: "16x4"."""
        return f"{self.classes_per_batch}x{self.samples_per_class}"

    @property
    def pretrained(self) -> bool:
        """Whether the network starts from weights that somebody has trained."""
        facts = BACKBONES.get(self.backbone)
        return self.weights is not None or any(map(self.backbone_options.get, facts.fetching if facts else ()))

    @property
    def traits(self) -> Traits:
        """What the loss declares about itself."""
        return traits_or_default(find_objective(self.loss))

    @property
    def method(self) -> str:
        """The loss and what it is used with: "contrastive + memory", "triplet + semi_hard"."""
        return method_name(self.model_dump())

    def _defaults(self, table: str) -> dict[str, Any]:
        """Return the options of the loss or miner that its table is about."""
        if table == "loss_options":
            return options_of(find_objective(self.loss))
        return options_of(find_miner(self.mining)) if table == "mining_options" and self.mining is not None else {}


def method_name(values: Mapping[str, Any]) -> str:
    """Return the loss and what it is used with, from the values of a recipe or of a record that may be older.

    Example:
        >>> method_name({"loss": "contrastive", "memory": 800, "ccp": None})
        'contrastive + memory'
    """
    extras = [values.get("mining"), *(name for name in ("memory", "cover", "hierarchy") if values.get(name))]
    if values.get("ccp") is not None:
        extras.append("ccp")
    return " + ".join(short_name(str(part)) for part in [values["loss"], *extras] if part)


def _by_name(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with names in the place of the user's own functions."""
    return {
        name: name_of(CODE[name][0], value, CODE[name][1]) if name in CODE and callable(value) else value
        for name, value in values.items()
    }


def read_tables(*sources: str | Path) -> dict[str, Any]:
    """Read the names and values of recipes laid over each other, as `Recipe.of` takes them."""
    tables: dict[str, Any] = {}
    for source in sources:
        tables = laid_over(tables, read_toml(find_recipe(source)))
    return tables


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names and values of a recipe with the settings of the training loop among them."""
    training = values.get("training", {})
    rest = {name: value for name, value in values.items() if name != "training"}
    return {**training, **rest} if isinstance(training, Mapping) else dict(values)


def laid_over(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a recipe over those of another; tables are joined, unless they are another loss's options.

    Settings of the training loop are moved into their table, where a later recipe finds them however it says them. What
    a study found best for a loss may differ by dataset: the table `[on.cub]` is laid over all the rest as soon as the
    data's name is known to be "cub", and does not count elsewhere.

    Example:
        >>> laid_over({"loss": "triplet", "loss_options": {"margin": 0.1}}, {"loss": "circle", "dim": 8})
        {'loss': 'circle', 'dim': 8}
        >>> laid_over({"data": "cub"}, {"memory": 96, "on": {"sop": {"memory": 12800}, "cub": {"memory": 800}}})
        {'data': 'cub', 'memory': 800}
    """
    kept, over = without_choice_on_test(_in_tables(base), top), _in_tables(top)
    for table, owner in {**OPTIONS_OF, "on": "loss"}.items():
        before = kept.get(owner, Recipe.model_fields[owner].default)
        if over.get(owner, before) != before:
            kept.pop(table, None)
    for name, value in over.items():
        former = kept.get(name)
        if name == "ccp" and isinstance(former, str) and former != "none":
            former = {"preset": former}
        kept[name] = {**former, **value} if isinstance(value, Mapping) and isinstance(former, Mapping) else value
    if kept.get("data") is None or not isinstance(kept.get("on"), Mapping):
        return kept
    special = kept.pop("on").get(kept["data"], {})
    if not isinstance(special, Mapping):
        raise InputError(f"on.{kept['data']} must be a table of settings; got {special!r}.")
    return laid_over(kept, special)


def without_choice_on_test(values: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return values under a protocol that is asked for: those with classes of their own to choose by choose by those.

    Example:
        >>> without_choice_on_test({"select_on_test": True, "dim": 8}, {"protocol": "fixed-validation"})
        {'select_on_test': False, 'dim': 8}
    """
    chosen = "select_on_test" in values and asked.get("protocol", "default") != "default"
    return {**values, "select_on_test": False} if chosen else dict(values)


def _in_tables(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values under their present names, with settings of the training loop in its table."""
    renamed = {FORMERLY.get(name, name): value for name, value in values.items()}
    if "batch" in renamed:
        renamed |= _composed(renamed.pop("batch"))
    table = renamed.get("training", {})
    if not isinstance(table, Mapping):
        return renamed  # which `Recipe.of` refuses
    loop = {FORMERLY.get(name, name): value for name, value in table.items()}
    loop |= {name: renamed.pop(name) for name in list(renamed) if name in Settings.model_fields}
    return renamed | ({"training": loop} if loop else {})


def _composed(batch: Any) -> dict[str, int]:
    """Return the settings that "16x4" stands for."""
    found = re.fullmatch(r"\s*(\d+)\s*x\s*(\d+)\s*", str(batch))
    if found is None:
        raise InputError(f'batch is classes x items of each, such as "16x4"; got {batch!r}.')
    return {"classes_per_batch": int(found[1]), "samples_per_class": int(found[2])}


def _simple_names_last(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with whole tables first and options by themselves last, since those depend on the loss."""

    def order(name: str) -> int:
        return 0 if name in Recipe.model_fields else 1 if name in Settings.model_fields else 2

    renamed = {FORMERLY.get(name, name): value for name, value in values.items()}
    return {name: renamed[name] for name in sorted(renamed, key=order)}


def _names_time_alone(given: Mapping[str, Any]) -> bool:
    """Whether a time was asked for and no number of steps beside it: then time is the whole budget."""
    loop = given.get("training")
    names = {name.removeprefix("training.") for name in (*given, *(loop if isinstance(loop, Mapping) else ()))}
    return "seconds" in names and "steps" not in names


def _put(name: str, value: Any, tables: dict[str, Any], loop: dict[str, Any]) -> list[str]:
    """Set a value in the table that has its name; return a line on each name that none has."""
    table, _, option = name.partition(".")
    option = FORMERLY.get(option, option) if table == "training" else option
    if name == "training":
        if not isinstance(value, Mapping):
            return [f"training must be a table of settings; got {value!r}"]
        return [line for inner, setting in value.items() for line in _put(f"training.{inner}", setting, tables, loop)]
    if table == "ccp" and isinstance(tables["ccp"], str):
        tables["ccp"] = {"preset": tables["ccp"]}
    if table == "training" and option in loop:
        loop[option] = value
    elif option and isinstance(tables.get(table), dict | None) and table in tables:
        tables[table] = _with_option(tables[table] or {}, option, value)
    elif name in tables:
        tables[name] = value
    elif name in loop:
        loop[name] = value
    else:
        return _put_option(name, value, tables, loop)
    return []


def _put_option(name: str, value: Any, tables: dict[str, Any], loop: dict[str, Any]) -> list[str]:
    """Set an option of the loss or of the miner that was given by its name alone."""
    known: dict[str, dict[str, Any]] = {}
    with suppress(UnknownName):  # which is told where names are checked
        known["loss_options"] = options_of(find_objective(str(tables["loss"])))
        known["mining_options"] = {} if tables["mining"] is None else options_of(find_miner(str(tables["mining"])))
    having = [table for table, options in known.items() if name.partition(".")[0] in options]
    if having:
        tables[having[0]] = _with_option(tables[having[0]], name, value)
        return []
    choices = [*tables, *loop, *(option for options in known.values() for option in options)]
    return [str(UnknownName("setting", name.removeprefix("training."), choices)).split(" Choose from")[0]]


def _with_option(options: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    """Return options with another one, which may be inside of a table ("boundary.start").

    Example:
        >>> _with_option({"boundary": {"start": 1.0, "multiplier": 0.5}}, "boundary.start", 1.2)
        {'boundary': {'start': 1.2, 'multiplier': 0.5}}
    """
    outer, dot, inner = name.partition(".")
    if not dot:
        return {**options, name: value}
    inside = options.get(outer)
    return {**options, outer: _with_option(inside if isinstance(inside, Mapping) else {}, inner, value)}


def _sentence(details: Any) -> str:
    """Return one of pydantic's errors as one line."""
    place = ".".join(map(str, details["loc"]))
    if details["type"] == "value_error":  # raised by `_one_of`, which says what it got
        return f"{place}: {details['ctx']['error']}"
    if details["type"] == "extra_forbidden" and details["loc"][0] == "ccp":
        name = str(details["loc"][-1])
        if name in CCP_SYMBOLS:
            return f"{place}: the paper's {name} is called ccp.{CCP_SYMBOLS[name]} here"
        return str(UnknownName("setting of ccp", name, ["preset", *CCP.model_fields]))
    return f"{place}: {details['msg']}; got {masked(repr(details['input']))}"


def _with_none(value: Any) -> Any:
    """Return a value of TOML with None where it says "none"."""
    if isinstance(value, Mapping):
        return {name: _with_none(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_none(item) for item in value]
    return None if isinstance(value, str) and value == "none" else value


def _without_none(value: Any, usual: Any) -> Any:
    """Return a value as TOML can say it: "none" where None is not what is left out."""
    if isinstance(value, dict):
        known = usual if isinstance(usual, dict) else {}
        inner = {name: _without_none(item, known.get(name, ...)) for name, item in value.items()}
        return {name: item for name, item in inner.items() if item is not None}
    if isinstance(value, list):
        return [_without_none(item, ...) for item in value]
    return ("none" if usual is not None else None) if value is None else value
