"""The lists: looks, restrictions, extractors, pools, decisions, systems, datasets and metrics, each thing once.

A line is a name, where the thing is, and one sentence about it. Nothing here imports what it lists, so
``foveate list systems`` needs no torch. Other packages add lines by entry points; see docs/extending.md.

>>> POOLS.names()
['aim', 'attention', 'cls', 'ep', 'gap', 'jetley', 'learned', 'mean', 'own']
>>> POOLS.get("gap")
<class 'foveate.pool.gap.GAP'>
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from foveate.errors import DataError
from foveate.registry import Registry

Maker = Callable[..., Any]
"""A class or a function: what it makes is said in the folder that owns it, which this file must not import."""

LOOKS: Registry[Maker] = Registry("look", "looks")
RESTRICTIONS: Registry[Maker] = Registry("restriction", "restrictions")
EXTRACTORS: Registry[Maker] = Registry("extractor", "extractors")
POOLS: Registry[Maker] = Registry("pool", "pools")
DECISIONS: Registry[Maker] = Registry("decision", "decisions")
SYSTEMS: Registry[Any] = Registry(
    "system", "systems", hint="A system of your own: import its module first (on the command line: --import MODULE)."
)
DATASETS: Registry[Any] = Registry(
    "dataset", "datasets", error=DataError, hint="Your own images: from_csv(path) or from_folder(path)."
)
METRICS: Registry[Any] = Registry("metric", "metrics", error=DataError, instance_of="foveate.measure.metric:Metric")

KINDS: dict[str, Registry[Any]] = {
    registry.plural: registry
    for registry in (LOOKS, RESTRICTIONS, EXTRACTORS, POOLS, DECISIONS, SYSTEMS, DATASETS, METRICS)
}
"""Every registry by its plural: what ``foveate list KIND`` takes."""


def _list(registry: Registry[Any], folder: str, *lines: tuple[str, str, str]) -> None:
    for name, where, summary in lines:
        registry.add(name, f"foveate.{folder}.{where}", summary)


_list(
    LOOKS, "look",
    ("everywhere", "everywhere:Everywhere", "every place counts the same"),
    ("centre", "everywhere:Centre", "a bump in the middle of the image"),
    ("truth", "everywhere:Truth", "where the object is, by its true mask"),
    ("attention", "attentive:ClsAttention", "what a ViT's class token attends to"),
    ("adapted", "attentive:AdaptedAttention", "the same, corrected by a small MLP that learns from labels (A²)"),
    ("clusters", "clusters:PatchClusters", "the cluster of CLIP patches that a general prompt fits (TTR)"),
)  # fmt: skip
_list(
    RESTRICTIONS, "restrict",
    ("nothing", "restriction:Nothing", "everything is let through"),
    ("crops", "cropping:GreedyCrops", "the squares that hold most of the map, one after the other (A²)"),
    ("centre", "cropping:CentreCrops", "squares in the middle, one inside the other"),
    ("random", "cropping:ScatteredCrops", "squares at random places that do not overlap"),
    ("candidates", "cropping:CandidateCrops", "the best of a fixed grid of squares (A² adapter)"),
    ("tokens", "tokens:TopTokens", "the most attended patches; the rest is never computed (Glimpse)"),
    ("mask", "tokens:MaskedTokens", "the patches of the gaze's own mask"),
    ("tiles", "tokens:Tiles", "the image at several scales, cut into tiles (S²)"),
)  # fmt: skip
_list(
    EXTRACTORS, "extract",
    ("frozen", "extractor:Frozen", "a network by name, or ready, that never changes"),
    ("clip", "extractor:ClipTower", "the image tower of a CLIP model, in the space of its texts"),
)  # fmt: skip
EXTRACTORS.add("base", "foveate.assemble.adapting:FrozenBase", "the backbone of a fitted system")
_list(
    POOLS, "pool",
    ("own", "pooling:OwnPool", "the network's own: the mean of a CNN's map, a ViT's class token"),
    ("mean", "pooling:MeanPool", "the mean over the places that are visible"),
    ("learned", "pooling:LearnedPool", "one of those below that learn, as a part of a pipeline"),
    ("gap", "gap:GAP", "the mean over places"),
    ("cls", "gap:CLSPool", "a ViT's class token"),
    ("attention", "dar:AttentionPool", "learned queries over the map, several heads (DAR)"),
    ("jetley", "jetley:JetleyPool", "places compared with the global vector (Jetley et al.)"),
    ("aim", "aim:AIMPool", "one learned query per head over normalised patches (AIM)"),
    ("ep", "ep:EPPool", "many queries on the patches as they are, each pooling its own channels (efficient probing)"),
)  # fmt: skip
_list(
    DECISIONS, "decide",
    ("logistic", "decision:Logistic", "logistic regression"),
    ("dfr", "decision:BalancedLogistic", "L1 logistic regression on group-balanced subsets, averaged (DFR)"),
    ("cross-entropy", "gradient:CrossEntropy", "a head trained by gradient, and with it a pool that learns"),
    ("prompts", "prompts:TextPrompts", "the class whose text is nearest, no training (CLIP)"),
)  # fmt: skip
_list(
    SYSTEMS, "systems",
    ("A2", "a2:A2", "crops where a small ViT looks, read by a frozen embedder and a linear head (A²)"),
    ("A2Adapter", "a2_adapter:A2Adapter", "A² whose attention is corrected by a small MLP"),
    ("A2ZeroShot", "a2_zero_shot:A2ZeroShot", "one crop where a small ViT looks, compared by CLIP with text prompts"),
    ("AIMProbe", "aim_probe:AIMProbe", "AIM's attentive probe on a frozen ViT"),
    ("CentreCrop", "centre_crop:CentreCrop", "a probe on the middle of the image"),
    ("CnC", "cnc:CnC", "Correct-n-Contrast: a first model's predictions stand for the unknown attribute"),
    ("CVaRDRO", "cvar_dro:CVaRDRO", "trains on the worst share of every batch"),
    ("DAR", "dar:DAR", "Deep Attention Reweighting: a frozen CNN, a learned attention pool, a new head"),
    ("DFR", "dfr:DFR", "Deep Feature Reweighting: a frozen network, a last layer refitted to balanced groups"),
    ("EarlyMask", "early_mask:EarlyMask", "a ViT that reads only the patches a given mask keeps"),
    ("EPProbe", "ep_probe:EPProbe", "efficient probing on a frozen ViT: many queries, each its own channels"),
    ("ERM", "erm:ERM", "a network trained on the mean cross-entropy"),
    ("FullImage", "full_image:FullImage", "the plain linear probe: a frozen embedder sees the whole image"),
    ("Glimpse", "glimpse:Glimpse", "a frozen ViT run on the most attended tokens alone, then a linear head"),
    ("GroupDRO", "group_dro:GroupDRO", "training for the worst group, with group-balanced batches"),
    ("IFAM", "ifam:IFAM", "parts found by one ViT, classes by a second that may attend to nothing else"),
    ("JTT", "jtt:JTT", "Just Train Twice: the first model's errors count more in the second"),
    ("LateMask", "late_mask:LateMask", "a full ViT whose last features are averaged inside a given mask"),
    ("PDiscoFormer", "pdiscoformer:PDiscoFormer", "classes by the vectors of discovered parts"),
    ("RandomCrops", "random_crops:RandomCrops", "a probe on crops at random places, of the sizes A² would use"),
    ("Reweight", "reweight:Reweight", "ERM in which every group (or class) counts the same"),
    ("S2", "s2:S2", "the image at several scales, each cut into tiles of the embedder's size (S²)"),
    ("SpectralDecoupling", "spectral:SpectralDecoupling", "ERM with a penalty on the squared logits"),
    ("Subsample", "subsample:Subsample", "ERM on a balanced subset, the same number from every group"),
    ("TTR", "ttr:TTR", "CLIP on the one cluster of patches that a general prompt fits (test-time refinement)"),
    ("ZeroShot", "zero_shot:ZeroShot", "CLIP sees the whole image, prompts decide"),
)  # fmt: skip
SYSTEMS.add("Pipeline", "foveate.assemble.pipeline:Pipeline", "any five parts: look, restrict, extract, pool, decide")
_list(
    DATASETS, "data",
    ("critters", "critters:critters", "drawn animals whose habitat, company or coat gives the class away in training"),
    ("critters-cue", "cue:cue_critters", "critters whose label sits where attention does not look"),
    ("dominoes", "dominoes:dominoes", "an object below a digit that gives it away in training (DAR, Table 4)"),
    ("cmnist", "cmnist:cmnist", "coloured MNIST: digits whose colour gives them away in training, three versions"),
    ("own", "registry:own", "your own images by path: a CSV file, or a folder"),
)  # fmt: skip
_list(
    DATASETS, "data.sources",
    ("waterbirds", "waterbirds:WATERBIRDS", "land and water birds before land or water, the public folder"),
    ("waterbirds-rebuilt", "waterbirds:REBUILT", "Waterbirds composed anew by this package from CUB and Places"),
    ("waterbirds-dar", "waterbirds:WATERBIRDS_DAR", "Waterbirds with the DAR paper's counts, composed by this package"),
    ("celeba", "celeba:CELEBA", "faces: blond hair or not, with sex as the shortcut"),
    ("celeba-dar", "celeba:CELEBA_DAR", "CelebA with the DAR paper's counts"),
    ("spawrious-o2o-hard", "spawrious:O2O_HARD", "dog breeds, one place each in train, another's in test"),
    ("spawrious-m2m-hard", "spawrious:M2M_HARD", "dog breeds, two places for two breeds in train, swapped in test"),
    ("spawrious-dar", "spawrious:SPAWRIOUS_DAR", "Spawrious resampled to the DAR paper's counts"),
    ("metashift-catdog-disc", "metashift:DISC", "cat or dog: sofa, bed, bench, bike in train, shelves in test (iFAM)"),
    ("metashift-catdog-unmixed", "metashift:UNMIXED",
     "cat or dog: cats indoors, dogs outdoors in train, swapped in test (A2)"),
    ("metashift-animals", "metashift:ANIMALS_SOURCE", "eight animals, other contexts in test than in train (A2)"),
    ("urbancars", "urbancars:URBANCARS", "urban or country cars, background and a thing beside as two shortcuts"),
    ("urbancars-dar", "urbancars:URBANCARS_DAR", "UrbanCars with the DAR paper's counts"),
    ("spuco-animals", "spuco:SPUCO", "birds on land or water and dogs in or out of doors, 4 classes"),
    ("spuco-animals-dar", "spuco:SPUCO_DAR", "SpuCo-Animals with the DAR paper's counts"),
    ("cub", "cub:CUB", "200 bird species with boxes, parts and masks (CUB-200-2011)"),
    ("waterbird200", "waterbird200:WATERBIRD200",
     "train on CUB, test on the same birds before other backgrounds, 200 classes"),
    ("siim-acr", "siim:SIIM", "chest X-rays: pneumothorax or not, with the chest tube as the shortcut"),
    ("imagenet9", "imagenet:IMAGENET9",
     "nine superclasses of ImageNet before other backgrounds (backgrounds challenge)"),
    ("imagenet-val", "imagenet:IMAGENET_VAL", "ImageNet-1k validation images with their boxes"),
)  # fmt: skip
_list(
    METRICS, "measure",
    ("average", "accuracies:AVERAGE", "accuracy on all images"),
    ("adjusted_average", "accuracies:ADJUSTED", "group accuracies weighted by the training counts"),
    ("majority", "accuracies:MAJORITY", "accuracy on the images of groups that are usual in training"),
    ("minority", "accuracies:MINORITY", "accuracy on the images of groups that are rare in training"),
    ("worst_group", "accuracies:WORST_GROUP", "the lowest accuracy of all groups"),
    ("worst_class", "accuracies:WORST_CLASS", "the lowest accuracy of all classes"),
    ("ifam_worst_group", "accuracies:IFAM_WORST", "the lowest accuracy of a class on its minority groups (iFAM)"),
    ("unanswered", "accuracies:UNANSWERED", "share of images that the model had no answer to (NaN); less is better"),
    ("loss", "accuracies:LOSS", "mean cross-entropy; less is better"),
    ("cep_map", "entanglement:CEP_MAP", "core effect percentage of each channel of the last maps"),
    ("cep_pixel", "entanglement:CEP_PIXEL", "core effect percentage of each channel at each place"),
    ("cep_feature", "entanglement:CEP_FEATURE", "core effect percentage of each pooled component"),
    ("cep_output", "entanglement:CEP_OUTPUT", "core effect percentage of the logits as a whole"),
    ("cap", "entanglement:CAP", "core activation percentage: share of each channel's activation on the core"),
    ("cgp", "entanglement:CGP", "core Grad-CAM percentage: share of the heat on the core"),
    ("miou", "parts:MIOU", "foreground mIoU of all parts together with the object masks"),
    ("mass", "parts:MASS", "share of the foreground map that lies on the object"),
    ("coverage", "parts:COVERAGE", "share of the patches that are selected; neither way is better"),
    ("kp", "parts:KP", "keypoint error relative to the object's box; less is better"),
)  # fmt: skip
