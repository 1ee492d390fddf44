"""Backbones: networks from images to feature maps, written once, loading the published weights.

`BACKBONES` names them; `build_backbone` makes one. Each is a `torch.nn.Module` that also tells its
`channels`, the `input` that it expects and its `stages` for fine-tuning (see `Backbone`).
"""

from vicinal.backbones.backbone import Backbone, Fetched, Input, InStages
from vicinal.backbones.freezing import frozen_modules
from vicinal.backbones.hub_networks import HUB_NETWORKS, HubNetwork
from vicinal.backbones.layers import channels_last
from vicinal.backbones.own_network import as_backbone, rebuilt_by
from vicinal.backbones.published_weights import fetch, kept_weights, load_weights
from vicinal.backbones.stages import Stages, cut
from vicinal.backbones.table import BACKBONES, Facts, build_backbone, offline_options, small_images

__all__ = [
    "BACKBONES",
    "HUB_NETWORKS",
    "Backbone",
    "Facts",
    "Fetched",
    "HubNetwork",
    "InStages",
    "Input",
    "Stages",
    "as_backbone",
    "build_backbone",
    "channels_last",
    "cut",
    "fetch",
    "frozen_modules",
    "kept_weights",
    "load_weights",
    "offline_options",
    "rebuilt_by",
    "small_images",
]
