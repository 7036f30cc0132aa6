import java.io.FileInputStream;
import java.net.Socket;
import java.nio.charset.StandardCharsets;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import javax.net.ssl.SNIHostName;
import javax.net.ssl.SSLContext;
import javax.net.ssl.SSLParameters;
import javax.net.ssl.SSLSocket;
import javax.net.ssl.TrustManagerFactory;
import java.util.List;

class Client {
    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[0]);
        KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
        store.load(null, null);
        try (FileInputStream file = new FileInputStream(arguments[1])) {
            store.setCertificateEntry("ca", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(store);
        for (String version : List.of("TLSv1.2", "TLSv1.3")) {
            SSLContext context = SSLContext.getInstance("TLS");
            context.init(null, trust.getTrustManagers(), null);
            for (int round = 0; round < 2; round++) {
                Socket plain = new Socket("127.0.0.1", port);
                SSLSocket socket =
                    (SSLSocket) context.getSocketFactory().createSocket(plain, "www.example.com", port, true);
                SSLParameters parameters = socket.getSSLParameters();
                parameters.setProtocols(new String[] {version});
                parameters.setServerNames(List.of(new SNIHostName("www.example.com")));
                parameters.setEndpointIdentificationAlgorithm("HTTPS");
                socket.setSSLParameters(parameters);
                String request = "GET / HTTP/1.1\r\nHost: www.example.com\r\nConnection: close\r\n\r\n";
                socket.getOutputStream().write(request.getBytes(StandardCharsets.US_ASCII));
                String answer = new String(socket.getInputStream().readAllBytes(), StandardCharsets.US_ASCII);
                System.out.println(answer.substring(answer.indexOf("\r\n\r\n") + 4));
                socket.close();
            }
        }
    }
}
