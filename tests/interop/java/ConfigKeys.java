import java.io.PrintStream;
import java.lang.reflect.Field;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import kafka.server.ControllerConfigurationValidator;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.QuotaConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/** Kafka's configuration definitions, a line a key in the order of definition, and what its controller refuses. */
final class ConfigKeys {
    private static final String NULL = "-";

    static void print(PrintStream out) throws Exception {
        table(out, "topic", LogConfig.configDefCopy());
        table(out, "broker", AbstractKafkaConfig.CONFIG_DEF);
        table(out, "broker-quota", QuotaConfig.brokerQuotaConfigs());
        table(out, "group", GroupConfig.CONFIG_DEF);
        table(out, "client-metrics", ClientMetricsConfigs.configDef());
        table(out, "user-quota", QuotaConfig.userAndClientQuotaConfigs());
        table(out, "ip-quota", QuotaConfig.ipConfigs());
    }

    /** A line is a scope, then keys and values in base64 in turn; the answer is Kafka's refusal, or nothing. */
    static void check(Path cases, PrintStream out) throws Exception {
        KafkaConfig server = new KafkaConfig(Map.of("process.roles", "controller", "node.id", "1",
            "controller.quorum.bootstrap.servers", "localhost:9093", "controller.listener.names", "CONTROLLER",
            "listeners", "CONTROLLER://localhost:9093", "remote.log.storage.system.enable", "false"), false);
        ControllerConfigurationValidator validator = new ControllerConfigurationValidator(server);
        Map<String, ConfigResource.Type> types = Map.of("topic", ConfigResource.Type.TOPIC,
            "group", ConfigResource.Type.GROUP, "client-metrics", ConfigResource.Type.CLIENT_METRICS);
        for (String line : Files.readAllLines(cases)) {
            String[] fields = line.split("\t", -1);
            Map<String, String> configs = new LinkedHashMap<>();
            for (int at = 1; at < fields.length; at += 2) {
                configs.put(text(fields[at]), text(fields[at + 1]));
            }
            String refusal = "";
            try {
                if (fields[0].startsWith("broker")) {
                    Properties all = new Properties();
                    all.putAll(configs);
                    DynamicBrokerConfig.validateConfigs(all, fields[0].equals("broker"));
                } else {
                    validator.validate(new ConfigResource(types.get(fields[0]), "x"), configs, Map.of());
                }
            } catch (Exception error) {
                refusal = error.getMessage();
            }
            out.println(Base64.getEncoder().encodeToString(refusal.getBytes(StandardCharsets.UTF_8)));
        }
    }

    private static String text(String base64) {
        return new String(Base64.getDecoder().decode(base64), StandardCharsets.UTF_8);
    }

    private static void table(PrintStream out, String scope, ConfigDef definitions) throws Exception {
        Map<String, String> modes = DynamicBrokerConfig.dynamicConfigUpdateModes();
        for (ConfigDef.ConfigKey key : definitions.configKeys().values()) {
            String value = key.hasDefault() && key.defaultValue != null
                ? "=" + ConfigDef.convertToString(key.defaultValue, key.type) : NULL;
            out.println(String.join("\t", scope, key.name, key.type.name(), key.hasDefault() ? "optional" : "required",
                value, key.internalConfig ? "internal" : "public", validator(key.validator),
                scope.equals("broker") ? modes.getOrDefault(key.name, "read-only") : NULL, synonyms(scope, key.name)));
        }
    }

    private static String synonyms(String scope, String name) {
        List<String> found = new ArrayList<>();
        if (scope.equals("topic")) {
            for (ConfigSynonym each : ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.getOrDefault(name, List.of())) {
                found.add(each.name() + "*" + (each.converter().apply("7").equals("7")
                    ? 1 : Long.parseLong(each.converter().apply("1"))));
            }
        } else if (scope.equals("group")) {
            GroupConfig.brokerSynonym(name).ifPresent(each -> found.add(each + "*1"));
        }
        return found.isEmpty() ? NULL : String.join(",", found);
    }

    /** A validator in the words of kraftcore/configdef; its fields are private, and Kafka has no other way to ask. */
    private static String validator(ConfigDef.Validator validator) throws Exception {
        if (validator == null) {
            return NULL;
        }
        String kind = validator.getClass().getSimpleName();
        switch (kind) {
            case "Range":
                return "range " + bound(field(validator, "min")) + " " + bound(field(validator, "max"));
            case "ValidString":
                return words("string", field(validator, "validStrings"));
            case "CaseInsensitiveValidString":
                return words("caseless-string", new TreeSet<>((Collection<?>) field(validator, "validStrings")));
            case "ValidList":
                String flags = (Boolean) field(validator, "isEmptyAllowed") ? "empty" : "filled";
                return words("list " + flags + " " + ((Boolean) field(validator, "isNullAllowed") ? "null" : "set"),
                    field(field(validator, "validString"), "validStrings"));
            case "LambdaValidator":
                return "lambda " + validator;
            default:
                return kind.equals("Validator") ? validator.getClass().getEnclosingClass().getSimpleName() : kind;
        }
    }

    private static Object field(Object object, String name) throws Exception {
        Field field = object.getClass().getDeclaredField(name);
        field.setAccessible(true);
        return field.get(object);
    }

    private static String bound(Object number) {
        return number == null ? NULL : number.toString();
    }

    private static String words(String kind, Object values) {
        StringBuilder text = new StringBuilder(kind);
        for (Object value : (Collection<?>) values) {
            text.append(' ').append(value);
        }
        return text.toString();
    }
}
