import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;

/** A plugin in Java, for host.c: what the example in C does by the names greet, echo and check. */
public final class Example {
    private Example() {}

    private static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.ISO_8859_1);
    }

    private static Map<String, byte[]> fields(byte[] message) {
        Map<String, byte[]> fields = new HashMap<>();
        ByteBuffer rest = ByteBuffer.wrap(message).order(ByteOrder.LITTLE_ENDIAN).position(8);
        while (rest.remaining() >= 8) {
            byte[] name = new byte[rest.getInt()];
            byte[] value = new byte[rest.getInt()];
            rest.get(name).get(value);
            fields.putIfAbsent(new String(name, StandardCharsets.ISO_8859_1).toLowerCase(Locale.ROOT), value);
        }
        return fields;
    }

    private static byte[] answer(int status, byte[] body) {
        byte[][] parts = {bytes(":status"), bytes(Integer.toString(status)), bytes(":body"), body};
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        out.writeBytes(new byte[] {1, 4, 0, 0, 2, 0, 0, 0});
        for (int at = 0; at < parts.length; at += 2) {
            ByteBuffer lengths = ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN);
            out.writeBytes(lengths.putInt(parts[at].length).putInt(parts[at + 1].length).array());
            out.writeBytes(parts[at]);
            out.writeBytes(parts[at + 1]);
        }
        return out.toByteArray();
    }

    private static String text(byte[] value) {
        return value == null ? "" : new String(value, StandardCharsets.ISO_8859_1);
    }

    /** Answers a question. Called by several threads. */
    public static byte[] handle(byte[] question) {
        Map<String, byte[]> fields = fields(question);
        switch (text(fields.get(":function"))) {
            case "greet":
                return answer(200, bytes("hello " + text(fields.get(":args")) + " from Java\n"));
            case "echo":
                return answer(200, fields.get(":body"));
            case "check":
                boolean isRight = text(fields.get("x-key")).equals("key");
                return isRight ? answer(204, bytes("")) : answer(403, bytes("wrong key\n"));
            default:
                return answer(404, bytes("no such function\n"));
        }
    }
}
