import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Runs a broker with its controller, a producer and a consumer, and ends: the classes that they load are archived
 * (-XX:ArchiveClassesAtExit), and later JVMs start in half the time. Arguments: an empty folder, and classes to load besides.
 */
public final class LoadedClasses {
    private static int freePort() throws Exception {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }

    public static void main(String[] arguments) throws Exception {
        Path folder = Path.of(arguments[0]);
        int clients = freePort();
        int controllers = freePort();
        String servers = "127.0.0.1:" + clients;
        Path file = folder.resolve("server.properties");
        Files.writeString(file, String.join("\n",
            "process.roles=broker,controller",
            "node.id=1",
            "listeners=PLAINTEXT://" + servers + ",CONTROLLER://127.0.0.1:" + controllers,
            "controller.listener.names=CONTROLLER",
            "controller.quorum.bootstrap.servers=127.0.0.1:" + controllers,
            "offsets.topic.replication.factor=1",
            "offsets.topic.num.partitions=1",
            "group.initial.rebalance.delay.ms=0",
            "log.dirs=" + folder.resolve("data")));
        for (int at = 1; at < arguments.length; at++) {
            Class.forName(arguments[at]);
        }
        kafka.tools.StorageTool.execute(
            new String[] {"format", "-t", "4L6g3nShT-eMCtK--X86sw", "-c", file.toString(), "--standalone"}, System.out);
        Thread server = new Thread(() -> kafka.Kafka.main(new String[] {file.toString()}));
        server.setDaemon(true);
        server.start();
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            admin.createTopics(List.of(new NewTopic("topic", 1, (short) 1))).all().get(60, TimeUnit.SECONDS);
            Properties properties = new Properties();
            properties.put("bootstrap.servers", servers);
            properties.put("group.id", "group");
            properties.put("auto.offset.reset", "earliest");
            try (var producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer());
                 var consumer = new KafkaConsumer<>(properties, new StringDeserializer(), new StringDeserializer())) {
                producer.send(new ProducerRecord<>("topic", "value")).get(60, TimeUnit.SECONDS);
                consumer.subscribe(List.of("topic"));
                for (int tries = 0; tries < 600 && consumer.poll(Duration.ofMillis(100)).isEmpty(); tries++) {
                    Thread.onSpinWait();
                }
            }
            admin.describeCluster().nodes().get(60, TimeUnit.SECONDS);
        }
        System.exit(0);
    }
}
