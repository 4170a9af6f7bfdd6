"""Which data sets of the paper a folder holds: `metaxlm data check DIR`.

`check_data` looks, `render` shows it to a person, `Report.describe` gives it as JSON values.
Nothing in here needs torch.
"""

from metaxlm.finetune.data_folder.checking import DATA_SETS, check_data
from metaxlm.finetune.data_folder.findings import Finding, Report
from metaxlm.finetune.data_folder.rendering import render

__all__ = ["DATA_SETS", "Finding", "Report", "check_data", "render"]
