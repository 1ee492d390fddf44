"""Classical metric learners: the same objectives on squared distances, with a linear map instead of a network."""

from vicinal.classical.general import General
from vicinal.classical.kernel import Kernelised, KernelNeighbours, gaussian, polynomial
from vicinal.classical.kwok_tsang import KwokTsang
from vicinal.classical.learner import MetricLearner
from vicinal.classical.lmnn import LMNN
from vicinal.classical.mahalanobis import Mahalanobis
from vicinal.classical.mcml import MCML
from vicinal.classical.nca import NCA
from vicinal.classical.pola import POLA
from vicinal.classical.relative_hinge import RelativeHinge
from vicinal.classical.schultz_joachims import SchultzJoachims
from vicinal.classical.similarity_hinge import SimilarityHinge

__all__ = [
    "LMNN",
    "MCML",
    "NCA",
    "POLA",
    "General",
    "KernelNeighbours",
    "Kernelised",
    "KwokTsang",
    "Mahalanobis",
    "MetricLearner",
    "RelativeHinge",
    "SchultzJoachims",
    "SimilarityHinge",
    "gaussian",
    "polynomial",
]
