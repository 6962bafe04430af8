"""Encoders of other packages, with small random weights in local folders and files; nothing is fetched."""

import json
import sys

import numpy as np
import pytest
import torch
from rounding import tolerance
from torch import nn

import openradial
from openradial import encoders, files
from openradial.encoders import external
from openradial.encoders.networks import ExternalEncoder
from openradial.errors import BundleError, ExportError, MissingError, OptionError, WeightsError

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
WORDS = [*SPECIAL, "my", "please", "card", "lost", "stolen", "chip", "rate", "euro", "fee", "pound"]
TEXTS = ["my card lost", "", "please euro rate fee rate euro", "giraffe"]


@pytest.fixture(scope="module")
def make_bert(tmp_path_factory):
    """Save a small BERT with its tokenizer to a folder."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

    def make(seed=0, **files):
        folder = tmp_path_factory.mktemp("bert")
        torch.manual_seed(seed)
        tokenizer = Tokenizer(models.WordPiece({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
        tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
        special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
        fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=24, **special)
        fast.save_pretrained(folder)
        sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
        config = transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=32, **sizes)
        transformers.BertModel(config).save_pretrained(folder)
        for name, text in files.items():
            (folder / name.replace("_", ".")).write_text(text)
        return folder

    return make


@pytest.fixture(scope="module")
def bert(make_bert):
    return make_bert(README_md="---\nlanguage: en\nlicense: apache-2.0\n---\n# A model\n")


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("vit")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.ViTConfig(image_size=32, patch_size=8, **sizes)
    transformers.ViTModel(config).save_pretrained(folder)
    settings = {"image_processor_type": "ViTImageProcessor", "size": {"height": 32, "width": 32}}
    (folder / "preprocessor_config.json").write_text(
        json.dumps(settings | {"do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.25] * 3})
    )
    return folder


def sentences(n=120):
    random = np.random.default_rng(0)
    words = {"card": ["card", "lost", "stolen", "chip"], "rate": ["rate", "euro", "fee", "pound"]}
    labels = ["card", "rate"] * (n // 2)
    return [" ".join(["my", *random.choice(words[each], 6), "please"]) for each in labels], labels


def test_a_text_model_gives_the_mean_of_its_tokens(bert):
    import transformers

    encoder = encoders.load(f"hf:{bert}")
    net, read = transformers.AutoModel.from_pretrained(bert).eval(), transformers.AutoTokenizer.from_pretrained(bert)
    expected = []
    for text in TEXTS:  # one by one, without padding
        with torch.no_grad():
            mean = net(**read(text, return_tensors="pt")).last_hidden_state[0].double().mean(0)
        expected.append(mean / mean.norm())
    torch.testing.assert_close(
        encoder.features(TEXTS).double(), torch.stack(expected), **tolerance(1000, torch.float32)
    )
    assert (encoder.num_features, encoder.licence, encoder.inputs.max_tokens) == (16, "apache-2.0", 24)
    assert encoder.checksum == external._checksum([(bert / "model.safetensors").read_bytes()])


def test_an_image_model_gives_its_own_pooling(vit):
    import transformers

    encoder = encoders.load(f"hf:{vit}")
    pixels = np.random.default_rng(0).integers(0, 255, (6, 32, 32, 3)).astype(np.uint8)
    x = (torch.from_numpy(pixels).permute(0, 3, 1, 2).double() / 255 - 0.5) / 0.25
    with torch.no_grad():
        expected = transformers.AutoModel.from_pretrained(vit).eval()(pixel_values=x.float()).pooler_output.double()
    expected = expected / expected.norm(dim=1, keepdim=True)
    features = encoder.features(pixels)
    torch.testing.assert_close(features.double(), expected, **tolerance(1000, torch.float32))
    torch.testing.assert_close(torch.cat([encoder.features([each]) for each in pixels]), features)
    with pytest.raises(WeightsError, match="cannot be used: Input image size"):
        encoders.load(f"hf:{vit}", size=64)


def test_sentence_transformers_gives_what_its_encode_gives(bert, tmp_path):
    package = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Pooling, Transformer

    torch.manual_seed(0)
    modules = [Transformer(str(bert)), Pooling(16, "cls"), Dense(16, 8), Normalize()]
    package.SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(tmp_path / "model"))
    encoder = encoders.load(f"sentence-transformers:{tmp_path / 'model'}")
    expected = package.SentenceTransformer(str(tmp_path / "model"), device="cpu").encode(TEXTS, convert_to_tensor=True)
    torch.testing.assert_close(encoder.features(TEXTS), expected, **tolerance(1000, torch.float32))
    assert encoder.num_features == 8


def test_texts_are_fitted_saved_loaded_and_predicted(bert, tmp_path):
    model = openradial.fit(sentences(), encoder=f"hf:{bert}", out=tmp_path / "model")
    assert model.report.accuracy > 0.9
    loaded = openradial.load(tmp_path / "model")
    texts = sentences(20)[0]
    assert loaded.predict(texts).names == model.predict(texts).names
    assert np.array_equal(loaded.predict(texts).unknown_score, model.predict(texts).unknown_score)
    options = json.loads((tmp_path / "model" / "bundle.json").read_text())["network"]["options"]
    assert (options["encoder"], options["licence"]) == (f"hf:{bert}", "apache-2.0")
    tensors = files.read_tensors(tmp_path / "model" / "weights.safetensors")[0]
    assert not [name for name in tensors if name.startswith("network.")]
    with pytest.raises(ExportError, match="an encoder of another package cannot be exported"):
        model.export(tmp_path / "model.onnx")


def test_the_name_of_a_folder_is_absolute(bert, monkeypatch):
    monkeypatch.chdir(bert.parent)
    assert encoders.load(f"hf:{bert.name}").name == f"hf:{bert}"


def test_weights_that_differ_from_those_of_the_bundle_are_refused(make_bert, tmp_path):
    folder, other = make_bert(seed=0), make_bert(seed=1)
    openradial.fit(sentences(), encoder=f"hf:{folder}", out=tmp_path / "model")
    (folder / "model.safetensors").write_bytes((other / "model.safetensors").read_bytes())
    with pytest.raises(
        BundleError, match=r"has other weights than those the bundle was made with, sha256:\w+ instead of sha"
    ):
        openradial.load(tmp_path / "model")
    (folder / "model.safetensors").unlink()
    with pytest.raises(BundleError, match="has no weights as safetensors"):
        openradial.load(tmp_path / "model")


def test_photographs_are_fitted_saved_loaded_and_predicted(vit, photos, tmp_path):
    model = openradial.fit(photos, encoder=f"hf:{vit}", false_reject_rate=0.1, out=tmp_path / "model")
    loaded = openradial.load(tmp_path / "model")
    paths = sorted(photos.glob("*/*.png"))
    assert model.report.accuracy > 0.9
    assert loaded.predict(paths).names == model.predict(paths).names
    assert (loaded.preprocessing.size, loaded.preprocessing.std) == (32, (0.25,) * 3)


@pytest.mark.parametrize("encoder", ["bert", "vit"])
def test_a_model_for_other_data_is_refused(encoder, photos, request):
    folder = request.getfixturevalue(encoder)
    data = photos if encoder == "bert" else sentences(30)
    with pytest.raises(OptionError, match=r"does not take \w+, which .* holds; it takes (texts|images)"):
        openradial.fit(data, encoder=f"hf:{folder}")
    with pytest.raises(OptionError, match="no column of free text for the encoder hf:"):
        openradial.fit((np.zeros((60, 2)), [0, 1, 2] * 20), encoder=f"hf:{folder}")


def test_a_missing_pooler_is_not_replaced_by_random_numbers(vit, tmp_path):
    from safetensors.torch import load_file, save_file

    for name in ("config.json", "preprocessor_config.json"):
        (tmp_path / name).write_text((vit / name).read_text())
    state = load_file(vit / "model.safetensors")
    kept = {key: value for key, value in state.items() if not key.startswith("pooler.")}
    save_file(kept, tmp_path / "model.safetensors", metadata={"format": "pt"})
    image = [np.full((32, 32, 3), 99, np.uint8)]
    first, second = (encoders.load(f"hf:{tmp_path}").features(image) for _ in range(2))
    assert torch.equal(first, second)
    save_file(dict(list(kept.items())[3:]), tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(WeightsError, match=r"are incomplete: .* missing"):
        encoders.load(f"hf:{tmp_path}")


@pytest.mark.parametrize(
    ("name", "pad", "options"),
    [
        ("Roberta", 1, {"max_position_embeddings": 40, "pad_token_id": 1}),
        ("GPT2", 2, {"n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2, "bos_token_id": 2, "eos_token_id": 2}),
        ("T5", 1, {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2, "pad_token_id": 1}),
    ],
)
def test_texts_of_other_models_do_not_depend_on_padding(name, pad, options, tmp_path):
    """RoBERTa pads with another token than 0, GPT-2 has no such token, and of T5 only the encoder is used."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["<s>", "<pad>", "</s>", "<unk>", "my", "card", "lost", "rate"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"unk_token": "<unk>", "eos_token": "</s>"} | ({"pad_token": "<pad>"} if pad == 1 else {})
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(tmp_path)
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    options = options | (sizes if name == "Roberta" else {})
    config = getattr(transformers, f"{name}Config")(vocab_size=len(words), **options)
    getattr(transformers, f"{name}Model")(config).save_pretrained(tmp_path)
    encoder = encoders.load(f"hf:{tmp_path}")
    alone = torch.cat([encoder.features([text]) for text in TEXTS])
    assert encoder.inputs.pad == pad
    assert alone.norm(dim=1).tolist() == pytest.approx([1.0] * len(TEXTS))
    torch.testing.assert_close(encoder.features(TEXTS), alone, **tolerance(1000, torch.float32))


def test_clip_encodes_images_with_the_crop_of_its_processor(tmp_path):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    text = {"vocab_size": 9, "max_position_embeddings": 16, "bos_token_id": 1, "eos_token_id": 2, **sizes}
    vision = {"image_size": 32, "patch_size": 8, **sizes}
    net = transformers.CLIPModel(transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=8))
    net.eval().save_pretrained(tmp_path)
    settings = {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 36}, "do_center_crop": True}
    settings |= {"crop_size": {"height": 32, "width": 32}, "image_mean": [0.5] * 3, "image_std": [0.25] * 3}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
    pixels = np.random.default_rng(0).integers(0, 255, (3, 36, 36, 3)).astype(np.uint8)
    x = (torch.from_numpy(pixels[:, 2:34, 2:34]).permute(0, 3, 1, 2) / 255 - 0.5) / 0.25
    with torch.no_grad():
        pooled = net.visual_projection(net.vision_model(pixel_values=x).pooler_output)
    encoder = encoders.load(f"hf:{tmp_path}")
    expected = nn.functional.normalize(pooled)
    torch.testing.assert_close(encoder.features(pixels), expected, **tolerance(1000, torch.float32))


def test_a_folder_without_safetensors_is_refused(bert, tmp_path):
    for path in bert.iterdir():
        if path.suffix == ".json":
            (tmp_path / path.name).write_text(path.read_text())
    torch.save({}, tmp_path / "pytorch_model.bin")
    for prefix in ("hf", "sentence-transformers"):
        with pytest.raises(WeightsError, match="no weights as safetensors, and other files could run code"):
            encoders.load(f"{prefix}:{tmp_path}")


def test_a_model_is_fetched_from_the_hub_without_code_and_pickles(bert, monkeypatch):
    import huggingface_hub

    asked = []
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda name, allow_patterns: asked.append((name, allow_patterns)) or bert
    )
    encoder = encoders.load("hf:someone/model")
    assert (encoder.name, encoder.num_features) == ("hf:someone/model", 16)
    assert asked[0][0] == "someone/model"
    assert not any(pattern.endswith((".py", ".bin", ".pt", "*")) for pattern in asked[0][1])
    monkeypatch.setattr(
        huggingface_hub, "snapshot_download", lambda *_, **__: (_ for _ in ()).throw(OSError("offline"))
    )
    with pytest.raises(WeightsError, match="hf:someone/model cannot be used: no such folder; on the hub: offline"):
        encoders.load("hf:someone/model")


@pytest.mark.parametrize(
    ("name", "extra"),
    [("hf:a", "hf"), ("sentence-transformers:a", "sentence-transformers"), ("timm:a", "timm"), ("onnx:a", "onnx")],
)
def test_a_missing_package_is_answered_with_its_extra(name, extra, monkeypatch):
    for package in ("transformers", "sentence_transformers", "timm", "onnxruntime"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingError, match=rf"pip install 'openradial\[{extra}\]'"):
        encoders.load(name)


def tiny(seed=0):
    """Return a network as timm has them."""
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Conv2d(3, 6, 4, 4), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    net.num_features = 6
    net.default_cfg = {"input_size": (3, 16, 16), "mean": (0.5,) * 3, "std": (0.5,) * 3, "crop_pct": 0.5}
    net.default_cfg |= {"license": "mit"}
    return net


FACTORY = """
import torch
from torch import nn

def encoder():
    torch.manual_seed(SEED)
    return nn.Sequential(nn.Conv2d(3, 6, 4, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())

def deep():
    net = encoder()
    net[0].others = nn.ModuleList(nn.Linear(1, 1) for _ in range(60))
    return net

def flat():
    return nn.Conv2d(3, 6, 4)

def nothing():
    return None
"""


def test_a_factory_is_an_encoder_and_its_module_must_be_named_to_load_a_bundle(photos, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_encoder.py").write_text(FACTORY.replace("SEED", "0"))
    model = openradial.fit(photos, encoder="own_encoder:encoder", size=32, out=tmp_path / "model", baseline=False)
    assert model.preprocessing.size == 32
    with pytest.raises(BundleError, match=r"modules=\['own_encoder'\]"):
        openradial.load(tmp_path / "model")
    loaded = openradial.load(tmp_path / "model", modules=["own_encoder"])
    paths = sorted(photos.glob("*/*.png"))
    assert loaded.predict(paths).names == model.predict(paths).names
    (tmp_path / "own_encoder.py").write_text(FACTORY.replace("SEED", "11"))
    sys.modules.pop("own_encoder")
    with pytest.raises(BundleError, match="has other weights than those the bundle was made with"):
        openradial.load(tmp_path / "model", modules=["own_encoder"])
    for name, message in (("flat", "returns features"), ("nothing", "nn.Module"), ("other", "has no 'other'")):
        with pytest.raises(OptionError, match=message):
            encoders.load(f"own_encoder:{name}")


def test_an_encoder_of_many_layers_is_saved_and_loaded(photos, tmp_path, monkeypatch):
    """A bundle does not hold its weights, so their number says nothing about what the network may have."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "deep_encoder.py").write_text(FACTORY.replace("SEED", "0"))
    openradial.fit(photos, encoder="deep_encoder:deep", size=32, out=tmp_path / "model", baseline=False)
    loaded = openradial.load(tmp_path / "model", modules=["deep_encoder"])
    assert len(loaded.predict(photos / "dark" / "0.png").names) == 1


@pytest.mark.parametrize("name", ["huggingface:bert", ":bert", "hf:", "onnx:"])
def test_an_unknown_prefix_is_answered_with_the_known_ones(name):
    with pytest.raises(OptionError, match="hf:NAME, sentence-transformers:NAME, timm:NAME, onnx:FILE or package"):
        encoders.load(name)


def export_onnx(net, path, *shape, batch=True):
    axes = {"x": {0: "n"}} if batch else None
    torch.onnx.export(net, (torch.zeros(shape),), str(path), input_names=["x"], dynamic_axes=axes, dynamo=False)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("batch", [True, False])
def test_an_onnx_file_is_an_encoder(tmp_path, photos, batch):
    pytest.importorskip("onnxruntime")
    net = tiny().eval()
    export_onnx(net, tmp_path / "net.onnx", 1, 3, 16, 16, batch=batch)
    encoder = encoders.load(f"onnx:{tmp_path / 'net.onnx'}")
    pixels = np.random.default_rng(0).integers(0, 255, (5, 16, 16, 3)).astype(np.uint8)
    with torch.no_grad():
        expected = nn.functional.normalize(net(encoder.inputs.transform(encoder.inputs.ready(pixels))))
    torch.testing.assert_close(encoder.features(pixels), expected, **tolerance(1000, torch.float32))
    assert encoder.inputs.mean == (0.485, 0.456, 0.406)
    assert encoder.inputs.size == 16
    if batch:
        model = openradial.fit(photos, encoder=encoder.name, out=tmp_path / "model", baseline=False)
        assert openradial.load(tmp_path / "model").predict(photos / "dark" / "0.png").names == ["dark"]
        assert model.network[1]["checksum"] == encoder.checksum
        export_onnx(tiny(1).eval(), tmp_path / "net.onnx", 1, 3, 16, 16)
        with pytest.raises(BundleError, match="has other weights than those the bundle was made with"):
            openradial.load(tmp_path / "model")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_other_onnx_files_are_refused(tmp_path):
    pytest.importorskip("onnxruntime")
    export_onnx(nn.Linear(4, 2), tmp_path / "rows.onnx", 1, 4)
    with pytest.raises(OptionError, match=r"one input of images \(n, 3, h, w\).*for texts use hf:NAME"):
        encoders.load(f"onnx:{tmp_path / 'rows.onnx'}")
    (tmp_path / "broken.onnx").write_bytes(b"nothing")
    for name in ("broken", "missing"):
        with pytest.raises(WeightsError, match=f"{name}.onnx cannot be used"):
            encoders.load(f"onnx:{tmp_path / name}.onnx")


def test_weights_of_another_package_are_no_part_of_the_module():
    net = ExternalEncoder(nn.Linear(2, 2))
    assert net.state_dict() == {}
    assert list(net.parameters()) == []
