"""The zoo in PyTorch: what each network computes, its sizes, and the options it is named with."""

import json
from pathlib import Path

import edgetam_weights
import pytest
import torch
from said import refused

from model_profiling.core.errors import InputError
from model_profiling.models import load_model
from model_profiling.models.edgetam_image_encoder.model import ImageEncoder, Trunk, fused

ENCODER = "edgetam_image_encoder"


def test_sizes_are_the_published_ones() -> None:
    model = load_model(ENCODER).model
    with torch.device("meta"), torch.no_grad():  # shapes alone: nothing is computed
        network = model.get_eager_model().eval()
        made = network(*model.get_example_inputs())
    assert [tuple(each.shape) for each in made] == [(1, 256, side, side) for side in (256, 128, 64)]
    assert sum(weight.numel() for weight in network.parameters()) / 1e6 == pytest.approx(4.867, abs=1e-3)


def test_the_trunk_answers_what_timms_repvit_m1_does_under_the_same_training_weights() -> None:
    golden = json.loads(edgetam_weights.GOLDEN.read_text())
    trunk = Trunk().eval()
    trunk.load_state_dict(fused(edgetam_weights.trunk_weights()))
    with torch.no_grad():
        found = edgetam_weights.summary_of(trunk(edgetam_weights.image()))
    for mine, theirs in zip(found, golden["features"], strict=True):
        assert mine["shape"] == theirs["shape"]
        scale = theirs["deviation"]
        for what in ("mean", "deviation", "values"):
            assert mine[what] == pytest.approx(theirs[what], abs=1e-3 * scale, rel=1e-4)


def test_edgetams_checkpoint_gives_its_weights(tmp_path: Path) -> None:
    held = edgetam_weights.checkpoint_weights()
    torch.save({"model": held}, tmp_path / "edgetam.pt")
    named = load_model(f"edgetam_image_encoder@size=64,checkpoint={tmp_path / 'edgetam.pt'}")
    assert named.name == "edgetam_image_encoder_size64_checkpoint_edgetam"
    encoder = named.model.get_eager_model()
    lateral = encoder.neck.convs[0].get_submodule("conv")
    assert torch.equal(lateral.weight, held["image_encoder.neck.convs.0.conv.weight"])
    trunk = Trunk()
    trunk.load_state_dict(fused(edgetam_weights.trunk_weights()))
    for key, value in trunk.state_dict().items():
        assert torch.equal(encoder.trunk.state_dict()[key], value), key


def test_the_neck_adds_only_what_edgetams_adds() -> None:
    """Levels 2 and 3 are joined top down; the finer two stand alone, and level 3 does not come out."""
    torch.manual_seed(0)
    encoder = ImageEncoder(depths=(1, 1, 1, 1)).eval()
    sizes = zip(edgetam_weights.WIDTHS, (32, 16, 8, 4), strict=True)
    levels = [torch.randn(1, width, side, side) for width, side in sizes]
    with torch.no_grad():
        lateral = [conv(level) for conv, level in zip(encoder.neck.convs, reversed(levels), strict=True)]
        enlarged = torch.nn.functional.interpolate(lateral[0], scale_factor=2.0, mode="nearest")
        made = encoder.neck(levels)
    for mine, theirs in zip(made, (lateral[3], lateral[2], lateral[1] + enlarged), strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize(
    "damage",
    ["another model", "a weight is missing", "a wrong shape", "a pointer of git-lfs", "a script", "code"],
)
def test_a_checkpoint_that_does_not_fit_is_named(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "edgetam.pt"
    held = edgetam_weights.checkpoint_weights()
    first = "image_encoder.trunk.body.stages_2.blocks.3.channel_mixer.conv1.c.weight"
    match damage:
        case "another model":
            held = {"fc.weight": torch.zeros(3, 3)}
        case "a weight is missing":
            del held[first]
        case "a wrong shape":
            held[first] = torch.zeros(384, 191, 1, 1)
    torch.save({"model": Path if damage == "code" else held}, path)
    match damage:
        case "a pointer of git-lfs":
            path.write_text("version https://git-lfs.github.com/spec/v1\n")
        case "a script":
            path.write_text("import torch\n")
    model = load_model(f"edgetam_image_encoder@checkpoint={path}").model
    with refused(InputError, path, "EdgeTAM") as caught:
        model.get_eager_model()
    said = str(caught.value)
    assert "weights_only" not in said  # what PyTorch advises would execute the file
    assert "git lfs pull" in said
    if damage in ("a weight is missing", "a wrong shape"):
        assert "stages.2.blocks.3.channel_mixer.conv1" in said


@pytest.mark.parametrize(
    ("spec", "facts"),
    [
        ("edgetam_image_encoder@sizes=64", "sizes 'size'"),
        ("edgetam_image_encoder@64", "edgetam_image_encoder@size=1024"),
        ("edgetam_image_encoder@size=0", "size 0 whole number"),
        ("edgetam_image_encoder@size=512,size=256", "size twice"),
        ("edgetam_image_encoder@size=1000", "edgetam_image_encoder 1000x1000 multiple 32"),
        ("edgetam_image_encoder@checkpoint=nowhere.pt", "nowhere.pt"),
        ("tiny_llama@prompt=256", "256 cache 128"),
        ("toy_cnn@size=64", "only toy_cnn"),
        ("linear@size=64", "only linear"),
        ("edgetam@size=64", "'edgetam'"),
    ],
)
def test_an_option_that_cannot_be_is_one_line(spec: str, facts: str) -> None:
    with refused(InputError, *facts.split()):
        load_model(spec)
