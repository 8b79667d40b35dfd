"""The approvals lock: decisions count only when they are signed with a key that a person's
passphrase opens.

The passphrase gives a key by Argon2id (RFC 9106), which opens an Ed25519 key (RFC 8032) sealed by
ChaCha20-Poly1305 (RFC 8439). The lock does not hold against code of the same account that replaces
the program, the key or the lock.
"""

import base64
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from evolvable_store import Actor, Principal, Store
from evolvable_store.errors import InvalidArgument, Refused
from evolvable_store.storage import Attestation, Signatures, Storage

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )


MIN_PASSPHRASE = 8
"""Characters of the shortest passphrase."""

_ITERATIONS, _LANES, _MEMORY_KIB = 3, 4, 64 * 1024  # RFC 9106, second recommended option
_PURPOSE = b"evolvable care approvals key 1"


@dataclass(frozen=True)
class ApprovalsLock:
    """The public half of the lock.

    key: the public key of the person whose account this is, in hexadecimal. people: the public keys
    of people who sign in, by how they are known. The key of each counts for what is in their own
    name, and for nothing else.
    """

    key: str
    people: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def _public_key(self) -> "Ed25519PublicKey":
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            return Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.key))
        except ValueError:
            hint = "Restore the person's configuration."
            raise InvalidArgument(
                "The public key of the approvals lock is not valid.", hint
            ) from None

    def verify(self, statement: bytes, signature: bytes) -> bool:
        """Return whether this key signed the statement."""
        from cryptography.exceptions import InvalidSignature

        try:
            self._public_key.verify(signature, statement)
        except InvalidSignature:
            return False
        return True

    def has_signed(self, attestation: Attestation) -> bool:
        """Return whether the account's own key signed a decision to trust a content."""
        return attestation.signature is not None and self.verify(
            attestation.statement, attestation.signature
        )

    def signatures(self, backend: Storage) -> Signatures:
        """Return the signatures of a library under this key."""
        return backend.signatures(self.key, self.verify)

    def vouched_operations(self, backend: Storage, operations: Iterable[int]) -> set[int]:
        """Return those of these operations that count as a person's.

        See `Signatures.vouched`; of people who sign in, those that their own key signed.
        """
        operation_ids = set(operations)
        vouched = self.signatures(backend).valid_operations(operation_ids)
        for via, key in self.people.items():
            unvouched = operation_ids - vouched
            vouched |= ApprovalsLock(key).signatures(backend).signed_by(via, unvouched)
        return vouched


def lost_locks(lock: ApprovalsLock | None, backend: Storage) -> list[str]:
    """Return the public keys of locks that a library has had, that nobody ended, and that do not
    count now.
    """
    now = lock.key if lock is not None else ""
    return [key for key in backend.attestations.lock_keys() if key != now]


def lost_lock_message(lock: ApprovalsLock | None, keys: Sequence[str]) -> tuple[str, str]:
    """Return what is to be said of lost locks, and what to do."""
    state = "the configuration names no lock now"
    if lock is not None:
        state = "the configuration names another key"
    locked = f"Approvals of this library were locked with key {keys[0][:16]}"
    message = f"{locked}, and {state}: decisions need no passphrase of it."
    command = "lock" if lock is not None else "unlock"
    return message, (
        "If you did not end the lock, restore the folder of your configuration from a backup;"
        f" if you did, `evolvable care approvals {command}` ends this message."
    )


@dataclass(frozen=True, slots=True)
class SigningKey:
    """An opened key. It stays in memory for one command."""

    key: str
    private: "Ed25519PrivateKey"

    def sign(self, statement: bytes) -> bytes:
        """Return the signature of a statement."""
        return self.private.sign(statement)


def make_key(passphrase: str) -> tuple[SigningKey, dict[str, Any]]:
    """Return a new key, and it as the fields of a file that only the passphrase opens.

    Raise InvalidArgument for a passphrase of fewer than MIN_PASSPHRASE characters.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    if len(passphrase) < MIN_PASSPHRASE:
        raise InvalidArgument(
            f"The passphrase has fewer than {MIN_PASSPHRASE} characters.", "Choose a longer one."
        )
    private, salt, nonce = Ed25519PrivateKey.generate(), os.urandom(16), os.urandom(12)
    kdf = {
        "name": "argon2id",
        "iterations": _ITERATIONS,
        "lanes": _LANES,
        "memory_kib": _MEMORY_KIB,
    }
    public = private.public_key().public_bytes_raw().hex()
    cipher = ChaCha20Poly1305(_derive_key(passphrase, salt, kdf))
    # The associated data binds the sealed key to its use and to its public half.
    sealed = cipher.encrypt(nonce, private.private_bytes_raw(), _PURPOSE + bytes.fromhex(public))
    fields = {
        "version": 1,
        "kdf": kdf,
        "salt": _encode_base64(salt),
        "nonce": _encode_base64(nonce),
        "public": public,
    }
    return SigningKey(public, private), {**fields, "sealed": _encode_base64(sealed)}


def open_key(fields: Any, passphrase: str) -> SigningKey:
    """Return the key that these fields of a file hold.

    Raise Refused for a wrong passphrase, InvalidArgument.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

    try:
        public, kdf = str(fields["public"]), fields["kdf"]
        salt, nonce, sealed = (
            base64.b64decode(fields[name], validate=True) for name in ("salt", "nonce", "sealed")
        )
        if _asks_too_much(kdf):
            raise ValueError("it asks for too much work")
        cipher = ChaCha20Poly1305(_derive_key(passphrase, salt, kdf))
        raw = cipher.decrypt(nonce, sealed, _PURPOSE + bytes.fromhex(public))
    except InvalidTag:
        raise Refused(
            "The passphrase is wrong, or the key file was changed.", "Type it again."
        ) from None
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidArgument(
            f"The file with the approvals key is not valid ({error}).", "Restore it."
        ) from None
    return SigningKey(public, Ed25519PrivateKey.from_private_bytes(raw))


def _asks_too_much(kdf: Any) -> bool:
    """Return whether the parameters of a key file cost far more than those that `make_key` writes.

    The file may have been replaced: its parameters must not make this process work for hours.
    """
    if kdf["memory_kib"] > 16 * _MEMORY_KIB or kdf["iterations"] > 16 * _ITERATIONS:
        return True
    return bool(kdf["lanes"] > 16)


def canonical_form(value: Any) -> bytes:
    """Return a value as the bytes that are signed: JSON with sorted keys and without spaces."""
    # The same value has the same bytes everywhere, or a signature would not verify.
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode("ascii")


def _derive_key(passphrase: str, salt: bytes, kdf: Any) -> bytes:
    from cryptography.hazmat.primitives.kdf.argon2 import Argon2id

    iterations, lanes, memory = (int(kdf[name]) for name in ("iterations", "lanes", "memory_kib"))
    derivation = Argon2id(
        salt=salt, length=32, iterations=iterations, lanes=lanes, memory_cost=memory
    )
    return derivation.derive(passphrase.encode("utf-8"))


def _encode_base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def unsigned_decisions(lock: ApprovalsLock | None, store: Store) -> list[int]:
    """Return the operations in the name of a person that are neither signed nor older than the
    lock.
    """
    if lock is None:
        return []
    own = (Principal.PERSON, Principal.SCRIPT, None)
    recent = store.operations(10_000)
    persons = [
        operation.id
        for operation in recent
        if operation.actor is Actor.HUMAN and operation.principal in own
    ]
    return sorted(set(persons) - lock.vouched_operations(store.backend, persons))
