"""The command ``fedelity-node``."""

import argparse
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import fedelity

from .errors import NodeError, SiteError

ABOUT = """\
Takes part in a federation with the data of this site. The data stay here; what leaves is what the site's file allows,
and every message is in the audit log.
"""

GUIDE = """\
A site starts with its kit, a folder from whoever runs the server:
  fedelity-node key --site site.toml     makes the site's private key; send the file .pub to the server's operator
  fedelity-node check --site site.toml   reads data and keys, and says what would leave
  fedelity-node --site site.toml         takes part

Exit status: 0 when it was told to stop, 2 for a mistake in the site's file, data or keys, 3 if the server does not
accept the key.
"""


def main() -> int:
    """Does what the command line says; returns the exit status."""
    try:
        return _run(_parse(sys.argv[1:]))
    except (NodeError, fedelity.Error) as error:
        print(f"fedelity-node: {error}", file=sys.stderr)
        return error.code if isinstance(error, NodeError) else SiteError.code
    except ModuleNotFoundError as error:
        print(f"fedelity-node: {error}; install it with: pip install 'fedelity[node]'", file=sys.stderr)
        return 1


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="fedelity-node", description=ABOUT, epilog=GUIDE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"fedelity-node {fedelity.__version__}")
    parser.add_argument("--site", type=Path, metavar="FILE", help="the site's file")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    check = commands.add_parser("check", help="read data and keys, and say what would leave")
    key = commands.add_parser("key", help="make the site's private key")
    for each in (check, key):
        each.add_argument("--site", type=Path, metavar="FILE", required=True, help="the site's file")
    check.add_argument("--agreement", type=Path, metavar="FILE", help="the server's agreement [default: the kit's, or the last]")
    kit = commands.add_parser(
        "kit", help="make the certificate authority, the server's certificate, and a kit for each site"
    )
    kit.add_argument("folder", type=Path, metavar="FOLDER", help="where they go; sites can be added to it later")
    kit.add_argument("--server", metavar="HOST:PORT", required=True, help="where sites reach the server")
    kit.add_argument("--also", metavar="HOST", action="append", default=[], help="another name or address of the server")
    kit.add_argument(
        "--site", dest="sites", metavar="NAME", action="append", required=True, help="a site; give it once for each"
    )
    kit.add_argument("--config", type=Path, metavar="FILE", help="the study, whose agreement becomes part of every kit")
    options = parser.parse_args(arguments)
    if options.command is None and options.site is None:
        parser.error("--site FILE is missing: the site's file, from its kit")
    return options


def _run(options: argparse.Namespace) -> int:
    if options.command == "kit":
        from .kit import make_kits

        study = None if options.config is None else fedelity.Server(options.config)
        for line in make_kits(options.folder, options.server, options.also, options.sites, study):
            print(line)
        return 0
    site = fedelity.Site(options.site)
    if options.command == "key":
        return _key(site)
    if options.command == "check":
        return _check(site, options)
    from .node import RunningNode

    return RunningNode(site).run()


def _key(site: fedelity.Site) -> int:
    from .keys import make_key

    if "key" not in site.keys:
        raise SiteError("the site's file does not say where its key is: add key = \"node.key\"")
    public = make_key(Path(site.keys["key"]))
    print(f"made {site.keys['key']}, which stays here, and {public}")
    print(f"send {public.name} to the server's operator, who registers it:")
    print(f"  flwr supernode register {public.name} CONNECTION")
    return 0


def _check(site: fedelity.Site, options: argparse.Namespace) -> int:
    from .keys import certificate, private_key

    keys = site.keys
    print(f"server       {keys['server']}, as client {site.client_number}")
    if "certificate" in keys:
        found = certificate(Path(keys["certificate"]))
        ends = found.not_valid_after_utc
        if ends < datetime.now(UTC):
            raise SiteError(f"certificate: {keys['certificate']} ended on {ends:%Y-%m-%d}: ask for a new kit")
        print(f"certificate  {found.subject.rfc4514_string()}, until {ends:%Y-%m-%d}")
    else:
        print("certificate  none: the connection is not encrypted, and nothing proves who the server is")
    if "key" in keys:
        private_key(Path(keys["key"]))
        print(f"key          {keys['key']}")
    else:
        print("key          none: the server must take any node")
    agreement = _agreement(site, options)
    if agreement is None:
        print(_data(site.look()))
        print("agreement    none yet: what would leave is known once the server has sent one, or with --agreement")
        return 0
    report = json.loads(site.report(agreement))
    print(_data(report["classes"]))
    print(f"leaves       {report['bytes']:,} bytes per round:")
    for name, numbers in report["arrays"].items():
        print(f"  {name:<20} {numbers:>12,} numbers")
    if report["counts-and-loss"]:
        print("  the numbers of samples and steps, and the mean loss")
    if report["label-counts"]:
        print("  among them, the number of samples of each class")
    if "largest-update" in report:
        print(f"  updates are scaled down to a norm of {report['largest-update']:g}")
    if "noise" in report:
        print(f"  every weight has noise of standard deviation {report['noise']:g}")
    print("  no sample and no label")
    return 0


def _data(classes: dict[str, int]) -> str:
    return f"data         {sum(classes.values())} samples: " + ", ".join(f"{n} {c}" for c, n in classes.items())


def _agreement(site: fedelity.Site, options: argparse.Namespace) -> str | None:
    kit = options.site.parent / "agreement.json"
    last = Path(site.keys["state"]) / "agreement.json"
    for path in [options.agreement] if options.agreement is not None else [last, kit]:
        try:
            return path.read_text()
        except FileNotFoundError:
            if options.agreement is not None:
                raise SiteError(f"cannot read {path}: there is no such file") from None
        except OSError as error:
            raise SiteError(f"cannot read {path}: {os.strerror(error.errno or 0)}") from None
    return None


if __name__ == "__main__":
    sys.exit(main())
