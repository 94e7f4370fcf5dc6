"""What stands between FSDP's sharded parameters and an optimizer: one module an adapter.

Each is a function from an optimizer's class to the class that is used in its place.
"""

from topologies.pytorch.adapters.builtin import builtin
from topologies.pytorch.adapters.local_shards import local_shards
from topologies.pytorch.adapters.none import none
from topologies.pytorch.adapters.original_parameters import original_parameters

ADAPTERS = {
    "none": none,
    "local-shards": local_shards,
    "original-parameters": original_parameters,
    "builtin": builtin,
}
