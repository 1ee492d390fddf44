"""Secrets in addresses never reach a message."""

from __future__ import annotations

import pytest

from vicinal._util.secrets import has_secret, masked


@pytest.mark.parametrize(
    "address",
    [
        "postgresql://me:hush@host/name",
        "postgresql+psycopg2://me:hush@hush@host:5432/name",
        "postgresql://me:hu/sh:hush@host/name",
        "mysql://host/name?user=me&password=hush",
        "https://me:hush@host/net-0123.pth",
        "https://host/net-0123.pth?X-Amz-Signature=hush&v=1",
        "see https://host/x?access_token=hush and go",
    ],
)
def test_secrets_are_starred_out(address: str) -> None:
    assert "hush" not in masked(address)
    assert "***" in masked(address)
    assert has_secret(address)


@pytest.mark.parametrize("address", ["runs/a:b@c.db", "https://host:8080/net.pth", "sqlite:////tmp/x.db", "imagenet"])
def test_addresses_without_secrets_stay(address: str) -> None:
    assert masked(address) == address
    assert not has_secret(address)


def test_a_name_alone_is_a_secret_too() -> None:
    assert has_secret("https://token@host/net.pth")
