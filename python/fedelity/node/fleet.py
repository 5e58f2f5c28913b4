"""A node's connection to a Flower SuperLink, over the Fleet API of Flower 1.41.

The modules used here are Flower's own and not part of its public interface, so the version is pinned exactly.
"""

import os

# Before Flower is imported: nothing is sent to its makers.
os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["FLWR_DISABLE_UPDATE_CHECK"] = "1"

import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
    UnregisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    ObjectPushError,
    pull_and_inflate_object_from_tree,
    push_objects,
)
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import generate_key_pairs, public_key_to_bytes
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from google.protobuf.message import DecodeError

from .errors import ConnectionLost, KeyRefused, SiteError

Answer = TypeVar("Answer")

# The server takes a node that it has not heard of for twice this many seconds to be gone.
HEARTBEAT = 30
# How long it may be until the server notices that an earlier process of this node has died.
STILL_ONLINE = 2 * HEARTBEAT + 15
# What a gateway answers while the server behind it restarts.
PASSING = {502, 503, 504}


class Fleet:
    """One node at one server. `node` is its number there once it has joined."""

    def __init__(self, address: str, certificate: Path | None, key: ec.EllipticCurvePrivateKey | None) -> None:
        # Without a key, the server must take anybody, and each start is a new node.
        self._anonymous = key is None
        private, public = (key, key.public_key()) if key is not None else generate_key_pairs()
        self._public = public_key_to_bytes(public)
        interceptors = [RuntimeVersionHttpInterceptor(component_name="SuperNode"), NodeAuthHttpInterceptor(private, public)]
        certificates = None if certificate is None else certificate.read_bytes()
        try:
            self._client = FleetHttpClient.from_server_address(address, certificate is None, certificates, interceptors)
        except (ssl.SSLError, UnicodeDecodeError) as error:
            raise SiteError(f"certificate: {certificate} is not a certificate in PEM format: {error}") from None
        self._address = address
        self._heart: HeartbeatSender | None = None
        self.node: int | None = None

    def join(self, known: int | None, tell: Callable[[str], None], wait: Callable[[float], None]) -> int:
        """Joins the server, as often as it takes while the server cannot be reached. `known` is the number from an earlier
        start, `tell` hears what is happening, and `wait` sleeps for some seconds or ends the attempt."""
        pause, refused_since = 1.0, None
        while True:
            try:
                return self._join(known)
            except ConnectionLost as lost:
                tell(f"{lost}; trying again")
                wait(pause)
                pause = min(2 * pause, 30.0)
            except _NotActivated:
                now = time.monotonic()
                if refused_since is None:
                    refused_since = now
                    tell(
                        "the server does not let this node in: it takes an earlier process of it to be online for up to "
                        f"{STILL_ONLINE} seconds after a crash, or does not know its key; trying again"
                    )
                if now - refused_since > STILL_ONLINE:
                    raise KeyRefused(
                        f"the server {self._address} does not know this node's key: its operator registers the public key "
                        "with `flwr supernode register`"
                    ) from None
                wait(3.0)

    def _join(self, known: int | None) -> int:
        if self._anonymous:
            self._call(self._client.RegisterNode, RegisterNodeFleetRequest(public_key=self._public))
        elif known is not None:
            # The process that had this number is gone, because this one has its state folder. A key that does not belong
            # to the number is told apart below.
            try:
                self._call(self._client.DeactivateNode, DeactivateNodeRequest(node_id=known))
            except (_NotActivated, KeyRefused):
                pass
        request = ActivateNodeRequest(public_key=self._public, heartbeat_interval=HEARTBEAT)
        self.node = self._call(self._client.ActivateNode, request).node_id
        self._heart = HeartbeatSender(self._beat)
        self._heart.start()
        return self.node

    def _beat(self) -> bool:
        request = SendNodeHeartbeatRequest(node=Node(node_id=self.node), heartbeat_interval=HEARTBEAT)
        try:
            return bool(self._client.SendNodeHeartbeat(request).success)
        except (httpx.HTTPError, RuntimeError):
            # Whether this is final is for the next message to find out.
            return False

    def receive(self, keep: Callable[[bytes], None]) -> Message | None:
        """The next message for this node, if there is one. The server gives it out once: `keep` saves what it takes to get it
        again, and the server has it until `confirm`."""
        response = self._call(self._client.PullMessages, PullMessagesRequest(node=Node(node_id=self.node)))
        if not response.messages_list:
            return None
        keep(response.SerializeToString())
        return self._fetch(response)

    def receive_again(self, kept: bytes) -> Message | None:
        """A message that was received before, unless the server does not have it any more."""
        try:
            return self._fetch(PullMessagesResponse.FromString(kept))
        except (DecodeError, IndexError, KeyRefused, _NotActivated, ConnectionLost):
            return None

    def _fetch(self, response: PullMessagesResponse) -> Message:
        head, tree = response.messages_list[0], response.message_object_trees[0]
        node, run = Node(node_id=self.node), head.metadata.run_id
        pull = make_pull_object_fn_protobuf(lambda request: self._call(self._client.PullObject, request), node, run)
        try:
            message = pull_and_inflate_object_from_tree(tree, pull, lambda _: None, return_type=Message)
        except ObjectPullError as error:
            raise ConnectionLost(str(error)) from None
        message.metadata.__dict__["_message_id"] = tree.object_id
        return message

    def confirm(self, message: Message) -> None:
        """Tells the server that a message need not be kept."""
        confirm = make_confirm_message_received_fn_protobuf(
            lambda request: self._call(self._client.ConfirmMessageReceived, request),
            Node(node_id=self.node),
            message.metadata.run_id,
        )
        try:
            confirm(message.metadata.message_id)
        except (KeyRefused, _NotActivated, ConnectionLost):
            # It keeps the message a little longer.
            pass

    def send(self, reply: Message, seconds: float) -> None:
        """Sends a reply that took this many seconds to make."""
        node, run = Node(node_id=self.node), reply.metadata.run_id
        reply.metadata.__dict__["_message_id"] = reply.object_id
        with no_object_id_recompute():
            tree, objects = get_object_tree(reply), get_all_nested_objects(reply)
            head = remove_content_from_message(reply) if reply.has_content() else reply
            request = PushMessagesRequest(
                node=node,
                messages_list=[message_to_proto(head)],
                message_object_trees=[tree],
                clientapp_runtime_list=[seconds],
            )
            response = self._call(self._client.PushMessages, request)
            push = make_push_object_fn_protobuf(
                lambda request: self._call(self._client.PushObject, request), node, run, response.session_id
            )
            try:
                push_objects(objects, push, object_ids_to_push=set(response.objects_to_push))
            except ObjectPushError as error:
                raise ConnectionLost(str(error)) from None

    def leave(self) -> None:
        """Leaves the server, if it can be reached."""
        if self._heart is not None and self._heart.is_running:
            self._heart.stop()
        self._heart = None
        if self.node is None:
            return
        try:
            self._client.DeactivateNode(DeactivateNodeRequest(node_id=self.node))
            if self._anonymous:
                self._client.UnregisterNode(UnregisterNodeFleetRequest(node_id=self.node))
        except (httpx.HTTPError, RuntimeError):
            pass
        self.node = None

    def _call(self, call: Callable[[Any], Answer], request: object) -> Answer:
        """Calls the server; errors say whether trying again makes sense."""
        try:
            return call(request)
        except httpx.HTTPStatusError as error:
            status = error.response.status_code
            if status in PASSING:
                raise ConnectionLost(f"the server {self._address} answers {status}") from None
            if status == httpx.codes.PRECONDITION_FAILED:
                raise _NotActivated(_detail(error.response)) from None
            if status == httpx.codes.UNAUTHORIZED:
                raise KeyRefused(
                    f"the server {self._address} does not accept this node's key, or the two clocks differ by more than "
                    "the server allows: register the key, and compare the clocks"
                ) from None
            raise ConnectionLost(f"the server {self._address} answers {status}: {_detail(error.response)}") from None
        except httpx.TransportError as error:
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                raise SiteError(
                    f"certificate: the server {self._address} cannot prove who it is with the site's certificate: {error}"
                ) from None
            raise ConnectionLost(f"cannot reach the server {self._address}: {error or type(error).__name__}") from None
        except RuntimeError as error:
            raise ConnectionLost(f"the server {self._address}: {error}") from None


class _NotActivated(Exception):
    """The server knows no such node that is offline."""


def _detail(response: httpx.Response) -> str:
    return response.text[:300]
