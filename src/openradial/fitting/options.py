"""What to fit on what, as plain values: the arguments of fit, of the command line and of a TOML file."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any, Literal, Self

from openradial.conformal.inputs import check_rate
from openradial.data.splits import Split, named_split, parse_known
from openradial.errors import OptionError, check_choice, check_count, check_positive, listed
from openradial.recipe import ClassWeightName, HeadName, LossName, MethodName, Recipe
from openradial.training import Settings
from openradial.training.settings import checked_names

COLUMNS = ("columns", "drop", "numeric", "categorical")  # options that name columns of a table
FLAGS = ("near_duplicates",)
TEXTS = ("label", "text", "group", "model", "encoder", "embeddings", "weights", "views")


@dataclass(frozen=True)
class FitOptions:
    """What is wanted of a model. Everything else follows from the data.

    Args:
        data: a folder with one folder of images per class (or with such folders in ``train`` and ``val`` or ``test``);
            a table (CSV, Parquet, NPZ, JSON Lines) with its ``label`` column; an NPZ file of uint8 images; or the name
            of a data set.
        label: the column of a table that holds the classes.
        text: the column of a table that holds texts, which is then used alone.
        group: a column of a table; rows with the same value are never separated by a split.
        near_duplicates: images that are copies of each other, resized or compressed again, are never separated by a
            split either, see :func:`openradial.data.near_duplicate_groups`.
        columns: the columns of a table to use, by default all; ``drop`` those to leave out. Their types are inferred,
            see :func:`openradial.data.infer_types`, except those of ``numeric`` and ``categorical`` columns. Lists of
            names, or names separated by commas.
        known: names of known classes, or a rule such as ``"random:6"``; the other classes are novel.
        novel: names of novel classes; the others are known.
        model: a network by name, or ``package.module:factory``; ``"auto"`` chooses one.
        encoder: a frozen encoder by name, see :func:`openradial.encoders.names`; ``"auto"`` chooses one for texts, also
            in a table, and for photographs of at least 40 pixels in files. Others are ``hf:NAME``,
            ``sentence-transformers:NAME``, ``timm:NAME``, ``onnx:FILE`` and ``package.module:factory``.
        embeddings: a file of features computed elsewhere (NPY, NPZ, Parquet), one row for each row of the table, which
            then gives only the labels and groups.
        weights: ``"imagenet"`` or a file of weights to start from; None follows from the network.
        reset: layers that ignore the ``weights``: ``"classifier"``, ``"fully_connected"`` or ``"none"``; or
            ``"closed-form"``, where the classifier is solved on the features instead of drawn at random.
        head: ``"radial"``, ``"softmax"``, ``"doc"`` or ``"cac"``.
        method: ``"gradient"`` trains a network; ``"closed-form"`` solves the head on the columns of a table or on other
            features, see :class:`openradial.heads.ClosedFormRadialHead`; ``"auto"`` is closed form for tables, and
            for photographs and texts on the features of an encoder; ``"best"`` fits a table in both ways and keeps the
            model with the higher accuracy on held-out known rows.
        finetune: continue with gradient training of the encoder of photographs, from the solution in closed form; the
            frozen model is kept unless the trained one is more accurate on held-out known examples.
        calibration: ``"split"`` holds a part out; ``"cross"``, in closed form, scores each example without its fold;
            ``"auto"`` is cross up to 20,000 examples in closed form.
        class_weight: ``"balanced"``, its square root ``"sqrt"``, or in closed form ``"auto"``.
        random_features: in closed form, the number of random Fourier features; None for the default.
        loss: of the radial head, see :class:`openradial.recipe.Recipe`; and so ``scale``, ``beta``.
        outliers: weight of the outliers that are made from each batch; 0 for none; None for the default.
        neighbours: whether distances to training examples in hidden layers count.
        far_axis: whether no class may be probable far from the training data, see docs/far-away.md; None for all data
            but those of encoders.
        baseline: whether to measure logistic regression beside the model too.
        time_limit: minutes for the run: training ends with the last epoch that fits, and in closed form optional parts
            are left out. Reading and encoding are not cut short.
        size: of images, in pixels.
        views: of photographs that an encoder looks at: ``"one"``, ``"flip"`` (the mirror image too) or ``"crops"``
            (the enlarged middle too); more are slower.
        false_reject_rate: share of known inputs that may be called unknown; in closed form with six classes or more,
            ``"auto"`` chooses it by the macro-F1 of known classes that are left out.
        skip_broken: leave out broken images instead of stopping.
        flip: mirror images at random while training; None for colour images alone.
        shift: move images at random by so many pixels while training; None for the default of the network.
        cutout: side of a square that is erased from each image while training, in pixels; 0 for none.
        augment: strength of other random changes of images while training, see
            :class:`openradial.data.transforms.RandomAffine` and ``RandomColour``; None for the default of the network.
        mixup: train on weighted means of two examples, see :class:`openradial.nn.objective.MixupObjective`; and so
            ``label_smoothing``, which moves targets from their prototype towards the centre of all.
        seed: for the split, the initial weights and the order of batches.
        model_options: options of the network.
        training: settings that replace the chosen ones, see :class:`openradial.training.Settings`.
    """

    data: str
    label: str | None = None
    text: str | None = None
    group: str | None = None
    near_duplicates: bool = False
    columns: str | Sequence[str] = ()
    drop: str | Sequence[str] = ()
    numeric: str | Sequence[str] = ()
    categorical: str | Sequence[str] = ()
    known: str | Sequence[str] | None = None
    novel: str | Sequence[str] | None = None
    model: str = "auto"
    encoder: str = "auto"
    embeddings: str | None = None
    weights: str | None = None
    reset: str = "classifier"
    head: HeadName = "radial"
    method: MethodName | Literal["auto", "best"] = "auto"
    finetune: bool = False
    calibration: Literal["auto", "split", "cross"] = "auto"
    class_weight: ClassWeightName | None = None
    random_features: int | None = None
    loss: LossName = "squared"
    scale: float = 1.0
    beta: float | None = None
    outliers: float | None = None
    neighbours: bool = True
    far_axis: bool | None = None
    baseline: bool = True
    time_limit: float | None = None
    size: int | None = None
    views: str = "one"
    false_reject_rate: float | Literal["auto"] = 0.05
    skip_broken: bool = False
    flip: bool | None = None
    shift: int | None = None
    cutout: int = 0
    augment: float | None = None
    mixup: float | None = None
    label_smoothing: float | None = None
    seed: int = 0
    model_options: Mapping[str, Any] = field(default_factory=dict)
    training: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in (*TEXTS, *COLUMNS, "known", "novel"):
            kind, wanted = (str | PathLike, "a text") if name in TEXTS else (Iterable, "a text or a list of texts")
            if not isinstance(value := getattr(self, name), kind | None):
                raise OptionError(f"{name} must be {wanted}, got {value!r}")
        for name in COLUMNS:
            object.__setattr__(self, name, _split(getattr(self, name)))
        if both := set(self.numeric) & set(self.categorical):
            raise OptionError(f"a column is numeric or categorical, got both for {listed(sorted(both))}")
        if self.false_reject_rate != "auto":
            check_rate("false_reject_rate", self.false_reject_rate)
        elif self.finetune or self.method in ("best", "gradient"):
            raise OptionError("false_reject_rate='auto' is for closed form alone; give a number, such as 0.05")
        check_count("seed", self.seed, least=0, most=2**63 - 1)  # what torch takes
        check_choice("reset", self.reset, ("classifier", "fully_connected", "none", "closed-form"))
        check_choice("method", self.method, ("auto", "best", "gradient", "closed-form"))
        check_choice("calibration", self.calibration, ("auto", "split", "cross"))
        if self.calibration == "cross" and self.method == "gradient":
            raise OptionError("calibration='cross' is for method='closed-form': training ten networks takes too long")
        if self.model == "features" and self.method == "gradient":
            raise OptionError("model='features' has nothing to train; use method='closed-form', or another network")
        if self.encoder != "auto" and self.method == "gradient":
            raise OptionError("an encoder is not trained; use method='closed-form', or model= and weights= to train")
        if self.embeddings is not None and (self.text is not None or self.encoder != "auto"):
            raise OptionError("embeddings are features already; leave out text and encoder")
        if self.finetune and (self.method in ("gradient", "best") or self.model != "auto" or self.weights is not None):
            raise OptionError("finetune trains the encoder, so method, model and weights are given; leave them out")
        if (self.finetune or self.reset == "closed-form") and (self.head != "radial" or self.random_features):
            raise OptionError("training starts from the closed form of a radial head without random features alone")
        if self.time_limit is not None:
            check_positive("time_limit", self.time_limit)
        if self.size is not None:
            check_count("size", self.size, least=8)
        if self.known is not None and self.novel is not None:
            raise OptionError("name either the known classes or the novel ones, got both; the rest is the other side")
        for name in ("shift", "cutout"):
            check_count(name, getattr(self, name) or 0, least=0)
        if self.augment:
            check_positive("augment", self.augment)
        for name in ("skip_broken", "flip", "neighbours", "far_axis", "baseline", "finetune", *FLAGS):
            value = getattr(self, name)
            if not isinstance(value, bool) and not (name in ("flip", "far_axis") and value is None):
                raise OptionError(f"{name} must be true or false, got {value!r}")
        # refuse what no recipe and no setting can be, before anything starts
        least = self.choose_method("points")  # what the other options ask for, whatever the data
        Recipe(**self.recipe_options() | {"method": least})
        Settings.from_mapping(self.training)
        if self.method != "best" and not self.finetune and least == "closed-form" and (given := self._only_trained()):
            raise OptionError(
                f"{given[0]} is for a network that is trained, and in closed form none is; leave it out, or use "
                "method='gradient'"
            )

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Make options from names and values; unknown names are refused, settings of training are sorted in."""
        names = {f.name for f in dataclasses.fields(cls)}
        settings = {f.name for f in dataclasses.fields(Settings)} - names
        checked_names(values, [*names, *settings])
        if "data" not in values:
            raise OptionError("a model needs data: name a folder, a table or a data set, such as data = 'digits'")
        for name in ("training", "model_options"):
            if not isinstance(values.get(name, {}), Mapping):
                raise OptionError(f"{name} must be a table of names and values, got {values[name]!r}")
        training = {**values.get("training", {}), **{name: values[name] for name in values if name in settings}}
        return cls(**{name: value for name, value in values.items() if name in names} | {"training": training})

    def recipe_options(self) -> dict[str, Any]:
        """Return the options that replace values of the recipe."""
        names = ("head", "loss", "scale", "beta", "class_weight", "far_axis", "label_smoothing", "mixup")
        values = {name: getattr(self, name) for name in names}
        values |= {"random_features": self.random_features, "outlier_weight": self.outliers}
        values["layers"] = None if self.neighbours else ()
        return {name: value for name, value in values.items() if value is not None}

    def choose_method(self, kind: str) -> MethodName:
        """Return the method for a kind of data."""
        if self.method == "gradient" or self.method == "closed-form":
            return self.method
        # what only one of the methods can do decides; else the kind of data
        is_closed = self.random_features is not None or self.class_weight == "auto" or self.calibration == "cross"
        is_closed = is_closed or self.model == "features" or self.encoder != "auto"
        is_trained = (
            self.method == "best" or bool(self._only_trained()) or (self.head, self.loss) != ("radial", "squared")
        )
        return "closed-form" if is_closed or (kind == "table" and not is_trained) else "gradient"

    def _only_trained(self) -> list[str]:
        """Return the given options that have a meaning only for a network that is trained."""
        defaults: dict[str, Any] = {"weights": None, "model_options": {}, "outliers": None, "flip": None, "shift": None}
        defaults |= {"cutout": 0, "mixup": None, "label_smoothing": None, "augment": None}
        given = [name for name, default in defaults.items() if getattr(self, name) != default]
        return [*self.training, *given, *(["model"] if self.model not in ("auto", "features") else [])]

    def split(self, classes: Sequence[str]) -> Split:
        """Return which of the classes are known."""
        given = self.novel if self.known is None else self.known
        if given is None:
            return Split(tuple(classes), ())
        if self.known is not None and isinstance(given, str) and given.startswith(("random:", "file:")):
            return parse_known(given, classes, seed=self.seed)
        names = _split(given.removeprefix("names:") if isinstance(given, str) else given)
        if not names:
            raise OptionError(f"classes are named with commas between them, as in cat,dog, got {given!r}")
        return named_split(classes, known=names) if self.novel is None else named_split(classes, novel=names)

    def as_dict(self) -> dict[str, Any]:
        """Return the options as JSON values."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        for name in ("known", "novel", *COLUMNS):
            values[name] = values[name] if isinstance(values[name], str | None) else list(values[name])
        return values | {"model_options": dict(self.model_options), "training": dict(self.training)}


def _split(names: str | Sequence[str]) -> tuple[str, ...]:
    texts = names.split(",") if isinstance(names, str) else map(str, names)
    return tuple(name.strip() for name in texts if name.strip())
