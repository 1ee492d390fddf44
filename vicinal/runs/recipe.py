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
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationError

from vicinal._util.code import NO_TRUST, Trust, code_hash, is_code, known_name, name_of, short_name
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
        trust: The code that the names in it may stand for. It is no part of the recipe: it is not written down, does
            not count when recipes are compared, and a file cannot give it. Recipes made from this one have it, too.

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
    _trust: Trust = PrivateAttr(default=NO_TRUST)

    @classmethod
    def read(cls, *sources: str | Path, trust: Trust = NO_TRUST, **changes: Any) -> Recipe:
        """Read recipes laid over each other: what a later one says counts, and `changes` most of all.

        Args:
            *sources: Names of recipes that come with vicinal ("thesis/cub-bn_inception"), or paths of TOML files.
            trust: The code that they, and the changes, may name.
            **changes: As `changed` takes them.
        """
        return cls.of(read_tables(*sources), trust).changed(changes)

    @classmethod
    def of(cls, values: Mapping[str, Any], trust: Trust = NO_TRUST) -> Recipe:
        """Make a recipe from names and values; settings of the training loop may stand among them.

        Every mistake is reported at once. TOML has no word for None: the string "none" stands for it.

        Args:
            values: As `changed` takes them.
            trust: The code that they may name.

        Example:
            >>> Recipe.of({"loss": "triplet", "steps": 50}).training.steps
            50
        """
        return cls().trusting(trust).changed(values)

    @property
    def trust(self) -> Trust:
        """The code that its names may stand for."""
        return self._trust

    def trusting(self, trust: Trust) -> Recipe:
        """Return the same recipe, whose names may stand for more code."""
        copied = self.model_copy()
        copied._trust = self._trust | trust
        return copied

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recipe) and self.model_dump() == other.model_dump()

    def changed(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> Recipe:
        """Return the recipe with other values.

        A name is one of a recipe, of its training settings, of a table ("loss_options.margin"), or of an option of the
        loss or miner by itself ("margin"). Where several say the same, the more special one counts: first whole tables
        and settings, of which a table replaces the one that is there, but for `training`; then what is named inside a
        table, and options by themselves, in the order in which they are given. A time (`seconds`) without `steps`
        beside it is the whole budget.

        Example:
            >>> Recipe().changed({"loss_options.threshold": 0.7, "learning_rate": 0.01}).loss_options
            {'threshold': 0.7}
        """
        layer = laid_over({"data": self.data}, {**(values or {}), **named})
        if isinstance(layer.get("on"), Mapping):
            del layer["on"]  # of data that the recipe does not name
        settings = {table: {} for table in OPTIONS_OF} | _without_what_changes(flat(self.model_dump()), layer)
        settings |= {name: value for name, value in layer.items() if name in settings}
        if layer.get("seconds") is not None and "steps" not in layer:
            settings["steps"] = None
        wrong = []
        for name in [name for name in layer if name not in settings]:
            table, option = _table_and_option(name, settings, self.trust)
            if table is None:
                wrong.append(_unknown(name, layer[name], settings, self.trust))
            else:
                settings[table] = _with_option(_as_table(settings[table]) or {}, option, layer[name])
        loop: Any = {name: settings.pop(name) for name in Settings.model_fields}
        try:
            made = Recipe(**settings, training=loop)
        except ValidationError as error:
            wrong += [_sentence(details) for details in error.errors()]
        if wrong:
            raise InputError("The recipe has mistakes:\n" + "\n".join(f"  - {text}" for text in wrong))
        return made.trusting(self.trust)

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
        return hashlib.sha256(json.dumps([name, data, values], sort_keys=True).encode()).hexdigest()[:16]

    def code(self) -> dict[str, str]:
        """Return the SHA-256 of all code that the recipe names and that does not come with vicinal, by its name."""
        hashes = {
            name: code_hash(kind, name, table, self.trust)
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
        return traits_or_default(find_objective(self.loss, self.trust))

    @property
    def method(self) -> str:
        """The loss and what it is used with: "contrastive + memory", "triplet + semi_hard"."""
        return method_name(self.model_dump())

    def _defaults(self, table: str) -> dict[str, Any]:
        """Return the options of the loss or miner that its table is about."""
        return _options_of_parts({"loss": self.loss, "mining": self.mining}, self.trust).get(table, {})


def method_name(values: Mapping[str, Any]) -> str:
    """Return the loss and what it is used with, from the values of a recipe or of a record.

    Example:
        >>> method_name({"loss": "contrastive", "memory": 800, "ccp": None})
        'contrastive + memory'
    """
    extras = [name for name in ("memory", "cover", "hierarchy") if values.get(name)]
    if values.get("ccp") is not None:
        extras.append("ccp")
    return " + ".join(short_name(str(part)) for part in [values["loss"], values.get("mining"), *extras] if part)


def read_tables(*sources: str | Path) -> dict[str, Any]:
    """Read the names and values of recipes laid over each other, as `Recipe.of` takes them."""
    layer: dict[str, Any] = {}
    for source in sources:
        layer = laid_over(layer, read_toml(find_recipe(source)))
    return layer


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a layer of settings in its one form: each setting by its name alone, with a value as Python has it.

    Settings of the training loop stand among the others; of one that is given twice, "training.steps" counts more than
    "steps", and that more than `steps` in a table `training`. `batch` becomes the two settings that it stands for, the
    user's own functions become names, and "none" becomes None. Tables of options stay tables, and what is named inside
    one ("loss_options.margin") stays as it is.

    Example:
        >>> flat({"steps": 5, "training": {"steps": 9, "seed": 1}, "batch": "16x4", "dim": "none"})
        {'steps': 5, 'seed': 1, 'dim': None, 'classes_per_batch': 16, 'samples_per_class': 4}
    """
    training = values.get("training", {})
    rest = {name: value for name, value in values.items() if name != "training"}
    dotted = {name: rest.pop(name) for name in list(rest) if name.startswith("training.")}
    if isinstance(training, Mapping):
        table = _by_name_alone({f"training.{name}": value for name, value in training.items()})
    else:
        table = {"training": training}  # which `Recipe.of` refuses
    layer = {**table, **rest, **_by_name_alone(dotted)}
    if "batch" in layer:
        layer |= _composed(layer.pop("batch"))
    for setting in CODE.keys() & layer.keys():
        if callable(layer[setting]):
            layer[setting] = name_of(CODE[setting][0], layer[setting], CODE[setting][1])
    return {name: _with_none(value) for name, value in layer.items()}


def laid_over(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Return a layer of settings over another, both of them `flat`: what the top says counts, and tables are joined.

    The options of a loss, miner or backbone do not outlive it. What a study found best for a loss may differ by
    dataset: the table `[on.cub]` is laid over all the rest as soon as the data's name is known to be "cub", and does
    not count elsewhere.

    Example:
        >>> laid_over({"loss": "triplet", "loss_options": {"margin": 0.1}}, {"loss": "circle", "dim": 8})
        {'loss': 'circle', 'dim': 8}
        >>> laid_over({"data": "cub"}, {"memory": 96, "on": {"sop": {"memory": 12800}, "cub": {"memory": 800}}})
        {'data': 'cub', 'memory': 800}
    """
    over = flat(top)
    layer = _without_what_changes(flat(base), over)
    for name, value in over.items():
        table = _as_table(layer.get(name)) if name == "ccp" else layer.get(name)
        layer[name] = {**table, **value} if isinstance(value, Mapping) and isinstance(table, Mapping) else value
    if layer.get("data") is None or not isinstance(layer.get("on"), Mapping):
        return layer
    special = layer.pop("on").get(layer["data"], {})
    if not isinstance(special, Mapping):
        raise InputError(f"on.{layer['data']} must be a table of settings; got {special!r}.")
    return laid_over(layer, special)


def without_choice_on_test(values: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return values under a protocol that is asked for: those with classes of their own to choose by choose by those.

    Example:
        >>> without_choice_on_test({"select_on_test": True, "dim": 8}, {"protocol": "fixed-validation"})
        {'select_on_test': False, 'dim': 8}
    """
    chosen = "select_on_test" in values and asked.get("protocol", "default") != "default"
    return {**values, "select_on_test": False} if chosen else dict(values)


def _without_what_changes(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return flat settings without what those over them make void: options of another loss, a choice on test data."""
    left = without_choice_on_test(base, over)
    for table, owner in {**OPTIONS_OF, "on": "loss"}.items():
        before = base.get(owner, Recipe.model_fields[owner].default)
        if over.get(owner, before) != before:
            left = {name: value for name, value in left.items() if name.partition(".")[0] != table}
    return left


def _by_name_alone(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of the training loop without "training." before their names; other names stay as they are."""
    short = {name: name.removeprefix("training.") for name in values}
    return {short[name] if short[name] in Settings.model_fields else name: value for name, value in values.items()}


def _composed(batch: Any) -> dict[str, int]:
    """Return the settings that "16x4" stands for."""
    sizes = re.fullmatch(r"\s*(\d+)\s*x\s*(\d+)\s*", str(batch))
    if sizes is None:
        raise InputError(f'batch is classes x items of each, such as "16x4"; got {batch!r}.')
    return {"classes_per_batch": int(sizes[1]), "samples_per_class": int(sizes[2])}


def _as_table(value: Any) -> Any:
    """Return the name of a preset of `ccp` as the table that it stands for; other values are returned as they are."""
    return {"preset": value} if isinstance(value, str) else value


def _table_and_option(name: str, settings: Mapping[str, Any], trust: Trust) -> tuple[str | None, str]:
    """Return the table that a name stands in, and its name there; no table where nothing has that name."""
    table, dot, option = name.partition(".")
    if dot and table in (*OPTIONS_OF, "ccp") and isinstance(_as_table(settings[table]), Mapping | None):
        return table, option
    options = _options_of_parts(settings, trust)
    return next((other for other, known in options.items() if table in known), None), name


def _options_of_parts(settings: Mapping[str, Any], trust: Trust) -> dict[str, dict[str, Any]]:
    """Return the options, with their defaults, of the loss and of the miner, by the table that they stand in."""
    options: dict[str, dict[str, Any]] = {}
    with suppress(UnknownName):  # which is reported where names are checked
        options["loss_options"] = options_of(find_objective(str(settings["loss"]), trust))
        if settings["mining"] is not None:
            options["mining_options"] = options_of(find_miner(str(settings["mining"]), trust))
    return options


def _unknown(name: str, value: Any, settings: Mapping[str, Any], trust: Trust) -> str:
    """Say that no setting has a name, with the nearest one that exists."""
    if name == "training":
        return f"training must be a table of settings; got {value!r}"
    options = [option for known in _options_of_parts(settings, trust).values() for option in known]
    return str(UnknownName("setting", name.removeprefix("training."), [*settings, *options])).split(" Choose from")[0]


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
