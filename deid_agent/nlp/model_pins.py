"""The SHA-256 of the manifest of each shipped model, which has the digest of its arrays.

Written by ``python .ci/pin_models.py``, which ``make models`` runs. A file of the packaged folder with another digest
is not loaded.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

PINS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "dehghan-token": "473345866c9d122e55724196c71e5bfb53470fa6113a537b5c9a6a322b2884ca",
        "dernoncourt-network": "8ba25d89607aa8a0fbcad5703b09c31d4bd3271405685e44ea06d36f5c8d1698",
        "ferrandez-names": "a385caa08ae04f2dfec7934dade026e6437fbce65929a4ead896a20704df8a43",
        "ferrandez-token": "acb5333790922b457d3f447c7644212b6ce9057f339f378504d23a04ab65fd34",
        "liu-character": "1444e06953c9c061e1c761d116516cb130b017b384d30bc0e5aced72a1746b93",
        "liu-token": "33a2ec1f38a3c1ff69b19cc10713cc2b9f55f15d1aaa54897fae5254db6bd6ec",
        "network": "41e83339817c59ea9e0df68b0b06c7c03442dd342d1a53e0704c3568072fdf52",
        "token": "06a233c9e8acb7ab2f0859a5694ac5af586018ef2029d631e2ae6044fd3e6cbe",
        "vectors": "39a14cb19922484455172f764d6ba3c595dc831e9678ad543a0a702252a22e0a",
        "zuccon-token": "04885c6917ac5d6065ebddf87ee38d9f9b2b1af13750a3b9e48ab479f72f452f",
    }
)
