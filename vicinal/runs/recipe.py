"""Recipes: all settings of a run in one TOML file; several files are merged, and later ones take precedence."""

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
from vicinal.data.splits import CHOOSING_FOLDS, CROSS_VALIDATION, USUAL_SHARE
from vicinal.errors import InputError, UnknownName, look_up
from vicinal.mining import MINERS, find_miner
from vicinal.objectives import ALIASES, OBJECTIVES, Traits, find_objective, options_of, traits_or_default
from vicinal.recipes import find_recipe
from vicinal.sampling import SAMPLERS
from vicinal.training.settings import CCP, CCP_SYMBOLS, MOST, Count, Items, Positive, Settings

__all__ = ["SCORES", "Recipe", "flat", "laid_over", "method_name", "read_tables", "without_choice_on_test"]

SCORES = ("P@1", "P@R", "MAP@R")  # scores that may select steps, recorded for every class

# Setting that each table of options belongs to: if a later file changes it, the options are reset.
OPTIONS_OF = {"loss_options": "loss", "mining_options": "mining", "backbone_options": "backbone"}
# Settings that name code, built-in or the user's: the kind of code, and the built-in names.
CODE: dict[str, tuple[str, Mapping[str, Any]]] = {
    "data": ("dataset", READERS),
    "loss": ("loss", {**OBJECTIVES, **ALIASES}),
    "mining": ("miner", MINERS),
    "backbone": ("backbone", BACKBONES),
}


def _one_of(kind: str, table: Mapping[str, Any]) -> AfterValidator:
    """Return a check that a name is in a table."""

    def check(name: str) -> str:
        look_up(kind, name, table)
        return name

    return AfterValidator(check)


def _code(setting: str) -> BeforeValidator:
    """Return a check that replaces an object by its name and rejects unknown names."""
    kind, table = CODE[setting]

    def named(value: Any) -> Any:
        if value is None:
            return None
        name = name_of(kind, value, table)
        return name if setting == "data" else known_name(kind, name, table)  # data may also be a path

    return BeforeValidator(named)


def _scored(settings: Settings) -> Settings:
    """Check that the score that selects steps exists."""
    look_up("score", settings.score, dict.fromkeys(SCORES))
    return settings


def _without_secret(address: str) -> str:
    """Check that an address has no secret, so that records, cards and reports may show it."""
    if has_secret(address):
        raise ValueError(
            f"the address {masked(address)} holds a password or a token: download the file yourself and give its path"
        )
    return address


class Recipe(BaseModel):
    """Settings of a run: data, split, loss, batches, network and training.

    Attributes:
        data: Name or path of a dataset; None if the data is passed as an object.
        protocol: Protocol that divides the classes; see `vicinal.data.split`.
        fold: Fold that validates, for protocols with folds.
        folds: Number of folds, by default that of the protocol.
        validation: Share of the training classes that validate, if the protocol draws them.
        select_on_test: Whether to select the step on the test classes, which is a leak; for comparison with papers that
            did.
        skip_bad: Whether to leave out unreadable images instead of raising an error.
        loss: Name of a loss (see `vicinal losses`), a function, or the path of a function, "my_module:my_loss" or
            "mine.py:my_loss". The same forms work for `mining`, `backbone` and `data` (a function that returns a
            `Dataset`).
        loss_options: Options of the loss.
        mining: Name of a miner.
        mining_options: Options of the miner.
        memory: Number of embeddings of past batches that the batch is also compared with (XBM); 0 for none.
        memory_start: Number of steps before the memory starts to fill.
        prefixes: Lengths to which embeddings may be truncated; the loss is the mean over these and the full length.
        cover: Number of points per class, selected from the data by greedy k-Center, that the batch is also compared
            with; 0 for none.
        cover_pool: Number of items per class from which they are selected.
        cover_every: Steps between two selections.
        hierarchy: Number of groups of classes whose mean proxies are also compared with (HPL), at most half the number
            of classes; 0 for none.
        hierarchy_weight: Weight of the loss on groups; the loss on classes has weight 1.
        proxies_per_class: Number of proxies per class, for losses with proxies.
        proxy_multiplier: Learning rate of proxies over that of the network.
        ccp: Chance-constrained proxies: "code", "paper" or a table of `CCP`; its settings of proxies replace those
            above.
        backbone: Name in `vicinal.backbones.BACKBONES`.
        backbone_options: Options of the backbone.
        weights: Pretrained weights: "imagenet", a path or a URL; None starts from random weights.
        start: Folder of a saved embedder of the same shape to start from, including its head.
        dim: Dimension of the embeddings; None for the backbone's features without a head. Ignored by losses on class
            probabilities, which have one dimension per training class.
        head_start: Start of the head: "random", or the principal axes of the training features ("pca"). None chooses
            PCA for a frozen pretrained network if the embeddings are no longer than its features and the head has a
            bias, which centres them.
        head_bias: Whether the head's linear map has a bias.
        pooling: Pooling of feature maps: "average", "max" or "both".
        normalisation: Normalisation of embeddings, in training and after: "sphere", "ball", or None. Class
            probabilities use the softmax instead.
        images: Name of the pair of transforms, by default one that fits the backbone.
        sampler: Name of the sampler: "classes", "random" or "hard-classes".
        classes_per_batch: Number of classes in a batch. `batch = "16x4"` sets this and `samples_per_class`.
        samples_per_class: Number of items of each class in a batch.
        freeze: Whether to compute the backbone's features once and train only the head on them. "trunk" caches the maps
            before the last `train_stages` instead, and trains these stages, too.
        copies: Number of augmented versions of each training item whose features are cached.
        train_stages: Number of the backbone's last stages to train; None for all.
        lora_rank: Rank of the LoRA matrices, which are trained while the network's own linear maps are frozen, and
            merged into these at the end. None trains the network itself.
        freeze_batch_norm: Whether batch norm keeps its statistics.
        training: Settings of the training loop.
        trust: Code that the names in the recipe may refer to. It is not part of the recipe: it is not saved, does not
            affect equality, and a file cannot set it. Recipes derived from this one inherit it.

    Example:
        >>> recipe = Recipe(loss="triplet").changed(steps=50, margin=0.2)
        >>> recipe.training.steps, recipe.value("margin"), recipe.method
        (50, 0.2, 'triplet')
    """

    # Settings are finite, but an option of a loss may be infinite, which TOML can express.
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
        """Read and merge recipes: later ones take precedence over earlier ones, and `changes` over all.

        Args:
            *sources: Names of built-in recipes ("thesis/cub-bn_inception"), or paths of TOML files.
            trust: Code that the recipes and the changes may name.
            **changes: Settings, as in `changed`.
        """
        return cls.of(read_tables(*sources), trust).changed(changes)

    @classmethod
    def of(cls, values: Mapping[str, Any], trust: Trust = NO_TRUST) -> Recipe:
        """Return a recipe from names and values, including settings of the training loop.

        All errors are reported at once. TOML has no None: use the string "none".

        Args:
            values: Settings, as in `changed`.
            trust: Code that the settings may name.

        Example:
            >>> Recipe.of({"loss": "triplet", "steps": 50}).training.steps
            50
        """
        return cls().trusting(trust).changed(values)

    @property
    def trust(self) -> Trust:
        """Code that the names in the recipe may refer to."""
        return self._trust

    def trusting(self, trust: Trust) -> Recipe:
        """Return the same recipe with more trusted code."""
        copied = self.model_copy()
        copied._trust = self._trust | trust
        return copied

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recipe) and self.model_dump() == other.model_dump()

    def changed(self, values: Mapping[str, Any] | None = None, /, **named: Any) -> Recipe:
        """Return the recipe with other values.

        A name is a setting of the recipe or of its training, an entry of a table ("loss_options.margin"), or an option
        of the loss or miner ("margin"). More specific names take precedence: whole tables and settings are applied
        first, then entries of tables and options, in the given order. A table replaces the existing one, except for
        `training`, which is merged. A time (`seconds`) without `steps` is the whole budget.

        Example:
            >>> Recipe().changed({"loss_options.threshold": 0.7, "learning_rate": 0.01}).loss_options
            {'threshold': 0.7}
        """
        layer = laid_over({"data": self.data}, {**(values or {}), **named})
        if isinstance(layer.get("on"), Mapping):
            del layer["on"]  # for other data
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
            recipe = Recipe(**settings, training=loop)
        except ValidationError as error:
            wrong += [_sentence(details) for details in error.errors()]
        if wrong:
            raise InputError("The recipe has errors:\n" + "\n".join(f"  - {text}" for text in wrong))
        return recipe.trusting(self.trust)

    def value(self, name: str) -> Any:
        """Return the value of a setting, or the default of an option that the recipe does not set.

        Example:
            >>> Recipe(loss="triplet").value("loss_options.margin"), Recipe().value("steps")
            (0.1, 1000)
        """
        table, _, option = name.rpartition(".")
        settings: dict[str, Any] = {**self.model_dump(), **self.training.model_dump(), "batch": self.batch}
        if table:
            inside = settings.get(table)
            settings = {**self._defaults(table), **(inside if isinstance(inside, dict) else {})}
        elif name not in settings:
            settings |= self._defaults("mining_options") | self.mining_options
            settings |= self._defaults("loss_options") | self.loss_options
        if option not in settings:
            raise UnknownName(f"setting in {table}" if table else "setting", option, settings)
        return settings[option]

    def toml(self) -> str:
        """Return the recipe as TOML that `read` can read.

        Example:
            >>> print(Recipe(loss="triplet", loss_options={"margin": 0.1}).toml().splitlines()[4])
            loss = "triplet"
        """
        values, usual = self.model_dump(mode="json"), Recipe().model_dump(mode="json")
        plain = {name: _without_none(value, usual[name]) for name, value in values.items()}
        return tomli_w.dumps({name: value for name, value in plain.items() if value is not None and value != {}})

    def key(self, data: str = "", name: str = "") -> str:
        """Return a hash of everything that the result of a run depends on, the same on every machine.

        Args:
            data: Hash of the dataset's content, independent of the location of its files.
            name: Name of the run in tables.
        """
        values = self.model_dump(mode="json", exclude={"data"})
        if values["weights"] is not None:
            values["weights"] = Path(values["weights"]).name
        if own := {Path(name).name: digest for name, digest in self.code().items() if name != self.data}:
            values["code"] = own
        return hashlib.sha256(json.dumps([name, data, values], sort_keys=True).encode()).hexdigest()[:16]

    def code(self) -> dict[str, str]:
        """Return the SHA-256 of all code that the recipe names and that is not built-in, by its name."""
        hashes = {
            name: code_hash(kind, name, table, self.trust)
            for setting, (kind, table) in CODE.items()
            if (name := getattr(self, setting)) is not None and (setting != "data" or is_code(name))
        }
        return {name: digest for name, digest in hashes.items() if digest is not None}

    def split(self, data: Dataset) -> Split:
        """Split data by the protocol, seed and fold of the recipe."""
        return split(
            data,
            self.protocol,
            seed=self.training.seed,
            fold=self.fold,
            folds=self.folds,
            validation=self.validation,
        )

    def by_fold(self) -> list[Recipe]:
        """Return the recipes that select settings: one for each fold of a cross-validation, otherwise this one."""
        if not self.cross_validated:
            return [self]
        folds = range(self.folds or CHOOSING_FOLDS)
        return [self.changed(fold=fold, patience=None) for fold in folds]

    @property
    def batch(self) -> str:
        """Classes in a batch and items of each: "16x4"."""
        return f"{self.classes_per_batch}x{self.samples_per_class}"

    @property
    def network(self) -> str:
        """Name of the network: the backbone, and the model that its options name."""
        return network_name(self.backbone, self.backbone_options)

    @property
    def cross_validated(self) -> bool:
        """Whether settings are chosen by cross-validation, and the model is then fitted on all training classes."""
        return self.protocol == CROSS_VALIDATION

    @property
    def trains_head_only(self) -> bool:
        """Whether only a head on fixed features is trained, which takes seconds."""
        return self.freeze is True or self.backbone == "linear"

    @property
    def pretrained(self) -> bool:
        """Whether the network starts from pretrained weights."""
        facts = BACKBONES.get(self.backbone)
        return self.weights is not None or any(map(self.backbone_options.get, facts.fetching if facts else ()))

    @property
    def traits(self) -> Traits:
        """Declared properties of the loss."""
        return traits_or_default(find_objective(self.loss, self.trust))

    @property
    def method(self) -> str:
        """The loss and its additions: "contrastive+memory", "triplet+semi_hard"."""
        return method_name(self.model_dump())

    def _defaults(self, table: str) -> dict[str, Any]:
        """Return the default options of the loss or miner that a table belongs to."""
        return _options_of_parts({"loss": self.loss, "mining": self.mining}, self.trust).get(table, {})


def method_name(values: Mapping[str, Any]) -> str:
    """Return the loss and its additions, from the values of a recipe or of a record.

    Example:
        >>> method_name({"loss": "contrastive", "memory": 800, "ccp": None})
        'contrastive+memory'
    """
    extras = [name for name in ("memory", "cover", "hierarchy") if values.get(name)]
    if values.get("ccp") is not None:
        extras.append("ccp")
    return "+".join(short_name(str(part)) for part in [values["loss"], values.get("mining"), *extras] if part)


def read_tables(*sources: str | Path) -> dict[str, Any]:
    """Read and merge the names and values of recipes, as `Recipe.of` takes them."""
    layer: dict[str, Any] = {}
    for source in sources:
        layer = laid_over(layer, read_toml(find_recipe(source)))
    return layer


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings in a canonical form: one level, short names and Python values.

    Settings of the training loop are at the same level as the others. If one is given twice, "training.steps" takes
    precedence over "steps", and that over `steps` in a table `training`. `batch` becomes its two settings, functions
    become names, and "none" becomes None. Tables of options, and names of their entries ("loss_options.margin"), are
    not changed.

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
        table = {"training": training}  # rejected by `Recipe.of`
    layer = {**table, **rest, **_by_name_alone(dotted)}
    if "batch" in layer:
        layer |= _composed(layer.pop("batch"))
    for setting in CODE.keys() & layer.keys():
        if callable(layer[setting]):
            layer[setting] = name_of(CODE[setting][0], layer[setting], CODE[setting][1])
    return {name: _with_none(value) for name, value in layer.items()}


def laid_over(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merged settings of two layers, both made `flat`: those of `top` take precedence; tables are merged.

    If the loss, miner or backbone changes, its options are reset. The best settings of a loss may differ by dataset:
    the table `[on.cub]` overrides all other settings if the data is "cub", and is ignored for other data.

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


def network_name(backbone: str, options: Mapping[str, Any]) -> str:
    """Return the name of a network in tables.

    Example:
        >>> network_name("timm", {"model": "vit_small_patch16_224"}), network_name("resnet50", {})
        ('timm vit_small_patch16_224', 'resnet50')
    """
    model = options.get("model")
    return backbone if model is None else f"{backbone} {Path(str(model)).name}"


def without_choice_on_test(values: Mapping[str, Any], requested: Mapping[str, Any]) -> dict[str, Any]:
    """Return values for a requested protocol: one with validation classes does not select on the test classes.

    Example:
        >>> without_choice_on_test({"select_on_test": True, "dim": 8}, {"protocol": "fixed-validation"})
        {'select_on_test': False, 'dim': 8}
    """
    chosen = "select_on_test" in values and requested.get("protocol", "default") != "default"
    return {**values, "select_on_test": False} if chosen else dict(values)


def _without_what_changes(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return flat settings without those that changes invalidate: options of another loss, selection on test data."""
    left = without_choice_on_test(base, over)
    for table, owner in {**OPTIONS_OF, "on": "loss"}.items():
        before = base.get(owner, Recipe.model_fields[owner].default)
        if over.get(owner, before) != before:
            left = {name: value for name, value in left.items() if name.partition(".")[0] != table}
    return left


def _by_name_alone(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of the training loop without the prefix "training."; other names are not changed."""
    short = {name: name.removeprefix("training.") for name in values}
    return {short[name] if short[name] in Settings.model_fields else name: value for name, value in values.items()}


def _composed(batch: Any) -> dict[str, int]:
    """Return the two settings of a batch such as "16x4"."""
    sizes = re.fullmatch(r"\s*(\d+)\s*x\s*(\d+)\s*", str(batch))
    if sizes is None:
        raise InputError(f'batch is classes x items per class, such as "16x4"; got {batch!r}.')
    return {"classes_per_batch": int(sizes[1]), "samples_per_class": int(sizes[2])}


def _as_table(value: Any) -> Any:
    """Return the table of a preset of `ccp`; other values are returned unchanged."""
    return {"preset": value} if isinstance(value, str) else value


def _table_and_option(name: str, settings: Mapping[str, Any], trust: Trust) -> tuple[str | None, str]:
    """Return the table of an option, and its name there; None if no table has it."""
    table, dot, option = name.partition(".")
    if dot and table in (*OPTIONS_OF, "ccp") and isinstance(_as_table(settings[table]), Mapping | None):
        return table, option
    options = _options_of_parts(settings, trust)
    return next((other for other, names in options.items() if table in names), None), name


def _options_of_parts(settings: Mapping[str, Any], trust: Trust) -> dict[str, dict[str, Any]]:
    """Return the options of the loss and of the miner with their defaults, by table."""
    options: dict[str, dict[str, Any]] = {}
    with suppress(UnknownName):  # reported when names are checked
        options["loss_options"] = options_of(find_objective(str(settings["loss"]), trust))
        if settings["mining"] is not None:
            options["mining_options"] = options_of(find_miner(str(settings["mining"]), trust))
    return options


def _unknown(name: str, value: Any, settings: Mapping[str, Any], trust: Trust) -> str:
    """Return a message that a setting does not exist, with the most similar name."""
    if name == "training":
        return f"training must be a table of settings; got {value!r}"
    options = [option for names in _options_of_parts(settings, trust).values() for option in names]
    return str(UnknownName("setting", name.removeprefix("training."), [*settings, *options])).split(" Choose from")[0]


def _with_option(options: Mapping[str, Any], name: str, value: Any) -> dict[str, Any]:
    """Return options with one changed, which may be an entry of a table ("boundary.start").

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
    setting = ".".join(map(str, details["loc"]))
    if details["type"] == "value_error":  # raised by `_one_of`, and already complete
        return f"{setting}: {details['ctx']['error']}"
    if details["type"] == "extra_forbidden" and details["loc"][0] == "ccp":
        name = str(details["loc"][-1])
        if name in CCP_SYMBOLS:
            return f"{setting}: the paper's {name} is called ccp.{CCP_SYMBOLS[name]} here"
        return str(UnknownName("setting of ccp", name, ["preset", *CCP.model_fields]))
    return f"{setting}: {details['msg']}; got {masked(repr(details['input']))}"


def _with_none(value: Any) -> Any:
    """Return a TOML value with None for "none"."""
    if isinstance(value, Mapping):
        return {name: _with_none(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_none(item) for item in value]
    return None if isinstance(value, str) and value == "none" else value


def _without_none(value: Any, usual: Any) -> Any:
    """Return a value for TOML: "none" for None, unless None is the default, which is left out."""
    if isinstance(value, dict):
        defaults = usual if isinstance(usual, dict) else {}
        inner = {name: _without_none(item, defaults.get(name, ...)) for name, item in value.items()}
        return {name: item for name, item in inner.items() if item is not None}
    if isinstance(value, list):
        return [_without_none(item, ...) for item in value]
    return ("none" if usual is not None else None) if value is None else value
