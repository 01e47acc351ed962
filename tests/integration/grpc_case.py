"""A test class with one server and a gRPC client of it."""

import unittest

from weft_server import WeftServer, grpc_modules


class GrpcCase(unittest.TestCase):
    """`flags` and `shards` are the server's; `stub` is the client of TextGeneration."""

    flags: tuple = ()
    shards = 1

    @classmethod
    def setUpClass(cls):
        cls.server = WeftServer(*cls.flags, shards=cls.shards).start()
        cls.grpc, cls.pb, cls.pb_grpc = grpc_modules()
        cls.channel = cls.grpc.insecure_channel(cls.server.grpc)
        cls.stub = cls.pb_grpc.TextGenerationStub(cls.channel)

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        cls.server.stop()

    def tearDown(self):
        self.server.wait_idle()
