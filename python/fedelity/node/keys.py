"""Private keys of sites and the certificates of a federation."""

import os
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .errors import SiteError

AUTHORITY_DAYS = 3650
SERVER_DAYS = 825


def make_key(path: Path) -> Path:
    """Makes a private key, which only its owner can read, and returns the file of the public key beside it."""
    private = ec.generate_private_key(ec.SECP384R1())
    encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    _create(path, private.private_bytes(encoding, serialization.PrivateFormat.OpenSSH, plain), secret=True)
    public = private.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    shown = path.with_suffix(".pub")
    _create(shown, public + b"\n")
    return shown


def private_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Reads a site's private key."""
    try:
        data, mode = path.read_bytes(), path.stat().st_mode
    except OSError as error:
        message = f"key: cannot read {path}: {error.strerror}; `fedelity-node key --site FILE` makes one"
        raise SiteError(message) from None
    if mode & 0o077:
        raise SiteError(f"key: others can read {path}: run `chmod 600 {path}`, and make a new key if they may have")
    try:
        key = serialization.load_ssh_private_key(data, None)
    except (ValueError, TypeError) as error:
        raise SiteError(f"key: {path} is not a private key in OpenSSH format without a password: {error}") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise SiteError(f"key: {path} is not an ECDSA key: make one with `fedelity-node key --site FILE`")
    return key


def certificate(path: Path) -> x509.Certificate:
    """Reads a certificate."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        raise SiteError(f"certificate: cannot read {path}: {error.strerror}") from None
    except ValueError:
        raise SiteError(f"certificate: {path} is not a certificate in PEM format") from None


def make_authority(folder: Path, name: str) -> None:
    """Makes a certificate authority, unless there is one: ca.key, which stays in the folder, and ca.crt."""
    if (folder / "ca.crt").exists():
        return
    private = ec.generate_private_key(ec.SECP384R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    built = (
        _dated(subject, subject, private.public_key(), AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(private.public_key()), critical=False)
        .sign(private, hashes.SHA384())
    )
    folder.mkdir(parents=True, exist_ok=True)
    _create(folder / "ca.key", _private(private), secret=True)
    _create(folder / "ca.crt", built.public_bytes(serialization.Encoding.PEM))


def make_server_certificate(authority: Path, folder: Path, hosts: list[str]) -> None:
    """Makes the server's key and certificate for these names and addresses, signed by the authority."""
    issuer = certificate(authority / "ca.crt")
    try:
        signer = serialization.load_pem_private_key((authority / "ca.key").read_bytes(), None)
    except OSError as error:
        raise SiteError(f"cannot read the authority's key {authority / 'ca.key'}: {error.strerror}") from None
    private = ec.generate_private_key(ec.SECP384R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0])])
    built = (
        _dated(subject, issuer.subject, private.public_key(), SERVER_DAYS)
        .add_extension(x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key()), critical=False)
        .sign(signer, hashes.SHA384())
    )
    folder.mkdir(parents=True, exist_ok=True)
    _create(folder / "server.key", _private(private), secret=True)
    _create(folder / "server.crt", built.public_bytes(serialization.Encoding.PEM))


def _dated(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # Clocks differ.
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=days))
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _private(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _create(path: Path, data: bytes, secret: bool = False) -> None:
    """Writes a file that must be new."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o644)
    except FileExistsError:
        raise SiteError(f"{path} exists, and is not overwritten") from None
    except OSError as error:
        raise SiteError(f"cannot write {path}: {error.strerror}") from None
    with os.fdopen(number, "wb") as file:
        file.write(data)
