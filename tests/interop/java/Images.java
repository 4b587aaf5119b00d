import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import org.apache.kafka.common.errors.UnsupportedVersionException;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.MetadataProvenance;
import org.apache.kafka.image.writer.ImageWriterOptions;
import org.apache.kafka.image.writer.RecordListWriter;
import org.apache.kafka.image.writer.UnwritableMetadataException;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;

/** Kafka's own metadata image: takes records, one delta a record, and writes itself as a snapshot does. */
final class Images {
    private Images() { }

    /** Lines: "record HEX", "new", "write LEVEL". Prints "record HEX" in the order written, "lost TEXT", "refused TEXT", "done". */
    static void play(Path script, PrintStream out) throws Exception {
        MetadataImage image = MetadataImage.EMPTY;
        for (String line : Files.readAllLines(script)) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "new" -> image = MetadataImage.EMPTY;
                case "record" -> {
                    MetadataDelta delta = new MetadataDelta.Builder().setImage(image).build();
                    try {
                        delta.replay(read(words[1]).message());
                        image = delta.apply(new MetadataProvenance(0, 0, 0, true));
                    } catch (RuntimeException refused) {
                        out.println("refused\t" + refused);
                    }
                }
                case "write" -> write(image, Short.parseShort(words[1]), out);
                default -> throw new IllegalArgumentException(line);
            }
        }
    }

    private static void write(MetadataImage image, short level, PrintStream out) {
        RecordListWriter writer = new RecordListWriter();
        try {
            image.write(writer, new ImageWriterOptions.Builder(image)
                .setMetadataVersion(MetadataVersion.fromFeatureLevel(level)).build());
            StringBuilder lines = new StringBuilder();
            for (ApiMessageAndVersion record : writer.records()) lines.append("record\t").append(hex(record)).append("\n");
            out.print(lines);
        } catch (UnwritableMetadataException lost) {
            out.println("lost\t" + lost.loss());
        } catch (UnsupportedVersionException lost) { // of fields that nobody looked at before
            out.println("lost\t" + lost.getMessage());
        }
        out.println("done");
    }

    private static ApiMessageAndVersion read(String hex) {
        byte[] value = HexFormat.of().parseHex(hex);
        return MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(ByteBuffer.wrap(value)), value.length);
    }

    private static String hex(ApiMessageAndVersion record) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(record, cache));
        MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(buffer));
        return HexFormat.of().formatHex(buffer.array());
    }
}
