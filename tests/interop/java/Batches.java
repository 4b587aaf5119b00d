import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HexFormat;
import java.util.List;
import java.util.StringJoiner;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;

/**
 * Batches to and from a text that both sides understand.
 *
 * Written from lines of fields parted by tabs, "-" for null, bytes in hex:
 * batch CODEC BASE_OFFSET LEADER_EPOCH PRODUCER_ID PRODUCER_EPOCH BASE_SEQUENCE TRANSACTIONAL LOG_APPEND_TIME_MS and
 * record TIMESTAMP KEY VALUE [HEADER_KEY HEADER_VALUE]... Read into the same lines, with what else a batch says.
 */
final class Batches {
    private static final HexFormat HEX = HexFormat.of();

    private Batches() { }

    static byte[] parse(String field) {
        return field.equals("-") ? null : HEX.parseHex(field);
    }

    static String hex(ByteBuffer buffer) {
        if (buffer == null) return "-";
        byte[] data = new byte[buffer.remaining()];
        buffer.duplicate().get(data);
        return HEX.formatHex(data);
    }

    /** Writes the batches of a specification one after the other. */
    static void write(Path specification, Path target) throws Exception {
        ByteBuffer out = ByteBuffer.allocate(64 << 20);
        List<String> records = new ArrayList<>();
        String[] head = null;
        for (String line : Files.readAllLines(specification)) {
            if (line.startsWith("batch\t")) {
                if (head != null) out.put(build(head, records).buffer());
                head = line.split("\t", -1);
                records.clear();
            } else {
                records.add(line);
            }
        }
        out.put(build(head, records).buffer());
        out.flip();
        byte[] data = new byte[out.remaining()];
        out.get(data);
        Files.write(target, data);
    }

    private static MemoryRecords build(String[] head, List<String> records) {
        long logAppendTime = Long.parseLong(head[8]);
        MemoryRecordsBuilder builder = MemoryRecords.builder(
            ByteBuffer.allocate(1 << 20),
            RecordBatch.MAGIC_VALUE_V2,
            Compression.of(CompressionType.forId(Integer.parseInt(head[1]))).build(),
            logAppendTime < 0 ? TimestampType.CREATE_TIME : TimestampType.LOG_APPEND_TIME,
            Long.parseLong(head[2]),
            logAppendTime,
            Long.parseLong(head[4]),
            Short.parseShort(head[5]),
            Integer.parseInt(head[6]),
            Boolean.parseBoolean(head[7]),
            Integer.parseInt(head[3]));
        for (String line : records) {
            String[] field = line.split("\t", -1);
            Header[] headers = new Header[(field.length - 4) / 2];
            for (int i = 0; i < headers.length; i++) {
                String key = new String(parse(field[4 + 2 * i]), java.nio.charset.StandardCharsets.UTF_8);
                headers[i] = new RecordHeader(key, parse(field[5 + 2 * i]));
            }
            builder.append(Long.parseLong(field[1]), parse(field[2]), parse(field[3]), headers);
        }
        return builder.build();
    }

    /** Prints every batch and record, after Kafka checked them. */
    static void read(Path source, PrintStream out) throws Exception {
        MemoryRecords all = MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(source)));
        for (MutableRecordBatch batch : all.batches()) {
            batch.ensureValid();
            StringJoiner line = new StringJoiner("\t");
            line.add("batch").add(Integer.toString(batch.compressionType().id)).add(Long.toString(batch.baseOffset()));
            line.add(Integer.toString(batch.partitionLeaderEpoch())).add(Long.toString(batch.producerId()));
            line.add(Short.toString(batch.producerEpoch())).add(Integer.toString(batch.baseSequence()));
            line.add(Boolean.toString(batch.isTransactional()));
            boolean appended = batch.timestampType() == TimestampType.LOG_APPEND_TIME;
            line.add(Long.toString(appended ? batch.maxTimestamp() : -1L));
            line.add(Long.toString(batch.lastOffset())).add(Boolean.toString(batch.isControlBatch()));
            line.add(Long.toString(batch.maxTimestamp())).add(Integer.toString(batch.countOrNull()));
            line.add(Integer.toString(batch.sizeInBytes())).add(Long.toString(batch.checksum()));
            out.println(line);
            for (Record record : batch) {
                StringJoiner fields = new StringJoiner("\t");
                fields.add("record").add(Long.toString(record.timestamp())).add(hex(record.key())).add(hex(record.value()));
                for (Header header : record.headers()) {
                    fields.add(HEX.formatHex(header.key().getBytes(java.nio.charset.StandardCharsets.UTF_8)));
                    fields.add(header.value() == null ? "-" : HEX.formatHex(header.value()));
                }
                out.println(fields.add("@" + record.offset()));
            }
        }
        if (all.validBytes() != all.sizeInBytes()) out.println("trailing\t" + (all.sizeInBytes() - all.validBytes()));
    }
}
