"""Every pattern's configuration: what a drafting worker answers with is decoded as one of these."""

from __future__ import annotations

from cutesmith.patterns.attention.configurations import (
    AttentionConfiguration,
    AttentionGradientConfiguration,
    HopperAttentionConfiguration,
)
from cutesmith.patterns.columns.configuration import ColumnsConfiguration
from cutesmith.patterns.contraction.blackwell.configuration import BlackwellConfiguration
from cutesmith.patterns.contraction.configurations import (
    ContractionConfiguration,
    DirectConfiguration,
    SkinnyConfiguration,
)
from cutesmith.patterns.contraction.hopper.configuration import HopperConfiguration
from cutesmith.patterns.elementwise.configuration import ElementwiseConfiguration
from cutesmith.patterns.interleaving.configuration import InterleavingConfiguration
from cutesmith.patterns.recurrences.configuration import RecurrencesConfiguration
from cutesmith.patterns.rows.configuration import RowsConfiguration
from cutesmith.patterns.scans.configuration import ScansConfiguration
from cutesmith.patterns.scatters.configurations import AtomicsConfiguration, ScattersConfiguration
from cutesmith.patterns.selection.configuration import SelectionConfiguration
from cutesmith.patterns.transforms.configuration import TransformsConfiguration
from cutesmith.patterns.windows.configuration import WindowsConfiguration

AnyConfiguration = (
    ElementwiseConfiguration
    | RowsConfiguration
    | ColumnsConfiguration
    | ContractionConfiguration
    | DirectConfiguration
    | SkinnyConfiguration
    | HopperConfiguration
    | BlackwellConfiguration
    | AttentionConfiguration
    | HopperAttentionConfiguration
    | AttentionGradientConfiguration
    | InterleavingConfiguration
    | RecurrencesConfiguration
    | ScansConfiguration
    | ScattersConfiguration
    | AtomicsConfiguration
    | SelectionConfiguration
    | TransformsConfiguration
    | WindowsConfiguration
)
