"""A release is named by its content, written once, and stays as it is."""

import asyncio
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from sqlalchemy.exc import DBAPIError

from service.catalog import repository
from service.catalog.content import KINDS, CatalogContent
from service.catalog.publish import publish, publish_folder, retire
from service.catalog.release import UnknownRelease
from service.catalog.snapshots import SnapshotCache, _parse
from service.cli import main
from service.core.errors import UnknownKey
from service.core.hardware import Gpu, PeakRates
from service.core.prices import RentalPrice
from service.db.session import team_session
from service.settings import PROJECT_ROOT

NOVEMBER = datetime(2026, 11, 29, 12, tzinfo=UTC)
DECEMBER = datetime(2026, 12, 1, 12, tzinfo=UTC)


def gpu(key, bandwidth=3350):
    return Gpu(
        key=key,
        name=key,
        memory_gb=80,
        memory_bandwidth_gb_per_s=bandwidth,
        peak_tflops=PeakRates(bf16=989.4),
    )


def price(valid_from, valid_to=None, amount="6.88"):
    return RentalPrice(
        key=f"aws.{valid_from}",
        provider="aws",
        region="us-east-1",
        instance_type="p5.48xlarge",
        gpu="a",
        gpu_count=8,
        commitment="on_demand",
        price_per_gpu_hour=Decimal(amount),
        valid_from=valid_from,
        valid_to=valid_to,
    )


def content(*gpus, prices=()):
    return CatalogContent(
        gpus=gpus,
        nodes=(),
        formats=(),
        architectures=(),
        sites=(),
        assumptions=(),
        prices=tuple(prices),
        token_prices=(),
        cost_facts=(),
        aliases=(),
    )


async def published(engine, what, now=NOVEMBER):
    async with team_session(engine, "") as session:
        return await publish(session, what, now=now)


async def test_versions_count_up_within_their_month(engine):
    versions = [
        (await published(engine, content(gpu(f"gpu-{number}")), now)).release.version
        for number, now in enumerate([NOVEMBER] * 11 + [DECEMBER])
    ]
    assert versions == [f"2026.11.{number}" for number in range(1, 12)] + ["2026.12.1"]
    async with team_session(engine, "") as session:
        newest = await repository.list_releases(session, limit=3)
        older = await repository.list_releases(session, limit=2, before="2026.11.10")
    # Numbers are compared as numbers: 11 comes after 9.
    assert [release.version for release in newest] == ["2026.12.1", "2026.11.11", "2026.11.10"]
    assert [release.version for release in older] == ["2026.11.9", "2026.11.8"]


async def test_the_same_content_is_published_once(engine):
    first = await published(engine, content(gpu("a"), gpu("b")))
    again = await published(engine, content(gpu("b"), gpu("a")), DECEMBER)
    assert (first.is_new, again.is_new) == (True, False)
    assert again.release == first.release


async def test_a_release_says_what_changed(engine):
    async with team_session(engine, "") as session:
        await publish(session, content(gpu("a")), now=NOVEMBER, notes="The first part.")
        assert (await repository.find_release(session, "latest")).notes == "The first part."


async def test_publishers_wait_for_one_another(engine):
    results = await asyncio.gather(*(published(engine, content(gpu("a"))) for _ in range(4)))
    assert sorted(result.is_new for result in results) == [False, False, False, True]
    assert {result.release.version for result in results} == {"2026.11.1"}


async def test_two_releases_stand_side_by_side(engine):
    old = (await published(engine, content(gpu("a", bandwidth=3350)))).release
    new = (await published(engine, content(gpu("a", bandwidth=3900)))).release
    assert old.digest != new.digest
    async with team_session(engine, "") as session:
        assert await repository.find_release(session, "latest") == new
        read_old = await repository.get_entry(session, old.version, "gpus", "a")
        read_new = await repository.get_entry(session, new.version, "gpus", "a")
    assert read_old.memory_bandwidth_gb_per_s == 3350
    assert read_new.memory_bandwidth_gb_per_s == 3900


async def test_a_retired_release_is_not_the_latest_and_stays_readable(engine):
    old = (await published(engine, content(gpu("a")))).release
    new = (await published(engine, content(gpu("b")))).release
    async with team_session(engine, "") as session:
        await retire(session, new.version, seen={"*"}, now=DECEMBER)
        assert await repository.find_release(session, "latest") == old
        retired = await repository.find_release(session, new.version)
        assert retired.retired_at == DECEMBER
        assert await repository.get_entry(session, new.version, "gpus", "b") == gpu("b")


async def test_of_two_who_retire_a_release_at_once_one_has_seen_an_old_state(engine):
    old = (await published(engine, content(gpu("a")))).release

    async def retired():
        async with team_session(engine, "") as session:
            return await retire(session, old.version, seen={old.state_tag}, now=DECEMBER)

    results = await asyncio.gather(retired(), retired(), return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["Release", "ReleaseChanged"]


async def test_retiring_twice_keeps_the_first_day(engine):
    old = (await published(engine, content(gpu("a")))).release
    async with team_session(engine, "") as session:
        first = await retire(session, old.version, seen={"*"}, now=NOVEMBER)
        again = await retire(session, old.version, seen={first.state_tag}, now=DECEMBER)
    assert first.retired_at == again.retired_at == NOVEMBER


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE catalog_entry SET document = '{}'",
        "DELETE FROM catalog_entry",
        "UPDATE catalog_release SET digest = 'other'",
        "DELETE FROM catalog_release",
    ],
)
async def test_nothing_of_a_release_can_be_changed(engine, statement):
    await published(engine, content(gpu("a")))
    with pytest.raises(DBAPIError):
        async with team_session(engine, "") as session:
            await (await session.connection()).exec_driver_sql(statement)


async def test_an_unknown_release_is_refused_by_name(engine):
    async with team_session(engine, "") as session:
        with pytest.raises(UnknownRelease, match="no catalog release is published yet"):
            await repository.find_release(session, "latest")
        with pytest.raises(UnknownRelease, match=r"'2025\.1\.1'") as caught:
            await SnapshotCache().load(session, "2025.1.1", date(2026, 11, 29))
    assert caught.value.pointer == "/catalog_release"


async def test_an_unknown_entry_is_refused_by_name(engine):
    release = (await published(engine, content(gpu("a")))).release
    async with team_session(engine, "") as session:
        with pytest.raises(UnknownKey, match="no gpu 'b'"):
            await repository.get_entry(session, release.version, "gpus", "b")


async def test_a_snapshot_holds_the_prices_of_its_day_and_is_made_once(engine):
    prices = [price(date(2024, 1, 1), date(2025, 5, 31), "12.29"), price(date(2025, 6, 1))]
    await published(engine, content(gpu("a"), prices=prices))
    cache = SnapshotCache()
    async with team_session(engine, "") as session:
        before = await cache.load(session, "latest", date(2025, 5, 31))
        after = await cache.load(session, "latest", date(2025, 6, 1))
        again = await cache.load(session, "2026.11.1", date(2025, 6, 1))
    assert [p.price_per_gpu_hour for p in before.rental_prices] == [Decimal("12.29")]
    assert [p.price_per_gpu_hour for p in after.rental_prices] == [Decimal("6.88")]
    assert again is after


async def test_latest_is_looked_up_each_time(engine):
    cache = SnapshotCache()
    await published(engine, content(gpu("a")))
    async with team_session(engine, "") as session:
        assert set((await cache.load(session, "latest", date(2026, 1, 1))).gpus) == {"a"}
    await published(engine, content(gpu("b")))
    async with team_session(engine, "") as session:
        assert set((await cache.load(session, "latest", date(2026, 1, 1))).gpus) == {"b"}


async def test_pages_follow_one_another_and_the_stream_holds_them_all(engine):
    keys = [f"gpu-{number}" for number in range(5)]
    release = (await published(engine, content(*map(gpu, keys)))).release
    async with team_session(engine, "") as session:
        first = await repository.list_entries(session, release.version, "gpus", limit=2)
        rest = await repository.list_entries(
            session, release.version, "gpus", limit=9, after=first[-1][0]
        )
        streamed = [e async for e in repository.stream_entries(session, release.version, "gpus")]
        counts = await repository.count_entries(session, release.version)
    assert [entry.key for _, entry in (*first, *rest)] == keys
    assert [entry.key for entry in streamed] == keys
    assert counts == {kind: 5 if kind == "gpus" else 0 for kind in KINDS}


def test_the_stored_catalog_is_the_one_in_the_files(database):
    publication = publish_folder(database.service_url, PROJECT_ROOT / "catalog", now=NOVEMBER)
    again = publish_folder(database.service_url, PROJECT_ROOT / "catalog", now=DECEMBER)
    assert (publication.is_new, again.is_new) == (True, False)
    assert again.release == publication.release

    async def digest_of_stored():
        from service.db.session import make_engine

        async with team_session(make_engine(database.service_url, pooled=False), "") as session:
            documents = await repository.load_documents(session, publication.release.version)
        return _parse(documents).digest()

    assert asyncio.run(digest_of_stored()) == publication.release.digest


def test_the_command_publishes_once_and_says_so(database, monkeypatch, capsys):
    monkeypatch.setenv("DATABASE_URL", database.service_url)
    assert main(["catalog", "publish", "--notes", "First prices."]) == 0
    assert "gpuplan: published catalog release 20" in capsys.readouterr().out
    assert main(["catalog", "publish"]) == 0
    assert "gpuplan: unchanged: this is catalog release 20" in capsys.readouterr().out


def test_the_command_publishes_nothing_that_is_wrong(database, monkeypatch, capsys, tmp_path):
    (tmp_path / "formats.yaml").write_text("formats: []\nformats: []\n")
    monkeypatch.setenv("DATABASE_URL", database.service_url)
    assert main(["catalog", "publish", str(tmp_path)]) == 1
    assert "formats.yaml:2: key 'formats' stands here twice" in capsys.readouterr().err


def test_the_command_retires_a_release(database, monkeypatch, capsys):
    monkeypatch.setenv("DATABASE_URL", database.service_url)
    version = publish_folder(database.service_url, PROJECT_ROOT / "catalog", now=NOVEMBER)
    assert main(["catalog", "retire", version.release.version]) == 0
    assert main(["catalog", "publish"]) == 0
    assert "2026.11.1, which is retired" in capsys.readouterr().out
    assert main(["catalog", "retire", "2020.1.1"]) == 2
    assert "there is no catalog release '2020.1.1'" in capsys.readouterr().err


def test_the_command_asks_for_a_database(monkeypatch, capsys):
    monkeypatch.delenv("DATABASE_URL", raising=False)
    assert main(["catalog", "publish"]) == 2
    assert "set DATABASE_URL" in capsys.readouterr().err
