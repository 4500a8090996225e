"""Who may call: this machine always, others with a key or where the operator says so."""

import pytest

from regard.errors import RegardError
from regard.serve.server import check_address
from regard.serve.settings import ServerSettings

OURS, ALL = ("127.0.0.1", "127.8.8.8", "::1"), ("0.0.0.0", "::", "192.0.2.1", "fe80::1%eth0")


@pytest.mark.parametrize("address", [*OURS, *ALL])
def test_others_need_a_key_or_an_open_server(address: str) -> None:
    for settings in (ServerSettings(keys=("key",)), ServerSettings(open=True)):
        check_address(address, settings)
    if address in OURS:
        check_address(address, ServerSettings())
        return
    for settings in (ServerSettings(host=address), ServerSettings(host=address, admin_keys=("key",))):
        with pytest.raises(RegardError, match=r"others could call it without a key; give --api-key-file, or --open"):
            check_address(address, settings)
