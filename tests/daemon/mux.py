"""A client in MUX mode, which is written from holdfast-protocol(7)."""
import struct

from cases import equal


class Error(str):
    """An error reply."""


class Mux:
    """A client in MUX mode."""

    def __init__(self, n):
        self.link = n.connect()
        self.lines = self.link.makefile('rb')
        self.send('HELLO', '1', 'MUX')
        self.hello = self.receive()
        self.pushes = []
        self.id = 0

    def send(self, *words):
        data = b'*%d\r\n' % len(words)
        for word in words:
            word = word if isinstance(word, bytes) else str(word).encode()
            data += b'$%d\r\n%s\r\n' % (len(word), word)
        self.link.sendall(data)

    def receive(self):
        line = self.lines.readline()[:-2]
        kind, rest = line[:1], line[1:]
        if kind == b'*':
            return [self.receive() for _ in range(int(rest))]
        if kind == b'$':
            return self.lines.read(int(rest) + 2)[:-2]
        if kind == b':':
            return int(rest)
        return (Error if kind == b'-' else str)(rest.decode())

    def take(self):
        """The next reply; pushes are kept."""
        while True:
            message = self.receive()
            if message[0] != 0:
                return message
            self.pushes.append(message[1:])

    def call(self, *words):
        """Send a request. Returns its reply without the id."""
        self.id += 1
        self.send(self.id, *words)
        reply = self.take()
        equal(reply[0], self.id)
        return reply[1:]

    def push(self):
        """The next push."""
        if not self.pushes:
            self.pushes.append(self.receive()[1:])
        return self.pushes.pop(0)


def string(data):
    return struct.pack('<I', len(data)) + data
