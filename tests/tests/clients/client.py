import socket
import ssl
import sys

port, authority = int(sys.argv[1]), sys.argv[2]
for version in ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3:
    context = ssl.create_default_context(cafile=authority)
    context.minimum_version = context.maximum_version = version
    session = None
    for _ in range(2):
        plain = socket.create_connection(("127.0.0.1", port))
        with context.wrap_socket(plain, server_hostname="www.example.com", session=session) as secure:
            secure.sendall(b"GET / HTTP/1.1\r\nHost: www.example.com\r\nConnection: close\r\n\r\n")
            answer = b""
            while piece := secure.recv(4096):
                answer += piece
            session = secure.session
            print(answer.split(b"\r\n\r\n")[1].decode())
