import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.config.internals.BrokerSecurityConfigs;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.SaslConfigs;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.auth.SaslExtensions;
import org.apache.kafka.common.security.auth.SaslExtensionsCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.internals.OAuthBearerSaslClient;
import org.apache.kafka.common.security.oauthbearer.internals.OAuthBearerSaslServer;

/** Kafka's side of OAUTHBEARER, without a connection. */
public class OAuth {
    /**
     * Answers client messages with Kafka's OAuthBearerSaslServer.
     *
     * The file's lines: "set NAME VALUE" changes a setting for what follows; "try MESSAGE..." gives a new server the
     * messages, in base64. Prints for each message, separated by blanks: "more:ANSWER", "done:ANSWER:NAME:LIFETIME",
     * "fail" with ":TEXT" where a client would read it (all in base64), or "crash:CLASS".
     */
    static void serve(Path file, PrintStream out) throws Exception {
        Map<String, String> set = new HashMap<>();
        OAuthBearerValidatorCallbackHandler handler = null;
        for (String line : Files.readAllLines(file)) {
            String[] words = line.split(" ");
            if (words[0].equals("set")) {
                if (words.length > 2) set.put(words[1], words[2]); else set.remove(words[1]);
                if (handler != null) handler.close();
                handler = null;
                continue;
            }
            if (handler == null) {
                handler = new OAuthBearerValidatorCallbackHandler();
                handler.configure(configs(set), "OAUTHBEARER", entries(Map.of()));
            }
            OAuthBearerSaslServer server = new OAuthBearerSaslServer(handler);
            List<String> said = new ArrayList<>();
            for (int i = 1; i < words.length; i++) said.add(answer(server, Base64.getDecoder().decode(words[i])));
            out.println(String.join(" ", said));
        }
    }

    private static String answer(OAuthBearerSaslServer server, byte[] message) {
        try {
            byte[] answer = server.evaluateResponse(message);
            if (!server.isComplete()) return "more:" + encode(answer);
            return "done:" + encode(answer) + ":" + encode(server.getAuthorizationID().getBytes(StandardCharsets.UTF_8))
                + ":" + server.getNegotiatedProperty("CREDENTIAL.LIFETIME.MS");
        } catch (org.apache.kafka.common.errors.SaslAuthenticationException e) {
            return "fail:" + encode(e.getMessage().getBytes(StandardCharsets.UTF_8));
        } catch (javax.security.sasl.SaslException e) {
            return "fail";
        } catch (RuntimeException e) {
            return "crash:" + e.getClass().getSimpleName();
        }
    }

    /**
     * What Kafka's client says: the first message with the token that its login finds, then its answer to an error of
     * the server. Arguments: the token's URL, then NAME=VALUE of the JAAS line and of settings ("sasl.").
     */
    static void ask(String url, List<String> pairs, PrintStream out) throws Exception {
        Map<String, String> set = new HashMap<>(Map.of(SaslConfigs.SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL, url));
        Map<String, String> options = new HashMap<>();
        for (String pair : pairs) {
            String[] words = pair.split("=", 2);
            (words[0].startsWith("sasl.") ? set : options).put(words[0], words[1]);
        }
        OAuthBearerLoginCallbackHandler login = new OAuthBearerLoginCallbackHandler();
        login.configure(configs(set), "OAUTHBEARER", entries(options));
        OAuthBearerTokenCallback token = new OAuthBearerTokenCallback();
        SaslExtensionsCallback extensions = new SaslExtensionsCallback();
        login.handle(new javax.security.auth.callback.Callback[] {token, extensions});
        OAuthBearerSaslClient client = new OAuthBearerSaslClient(new Subject(token, extensions.extensions()));
        out.println(encode(client.evaluateChallenge(new byte[0])));
        out.println(encode(client.evaluateChallenge("{\"status\":\"invalid_token\"}".getBytes(StandardCharsets.UTF_8))));
        out.println(encode(token.token().principalName().getBytes(StandardCharsets.UTF_8)) + " "
            + token.token().lifetimeMs() + " " + token.token().startTimeMs());
        login.close();
    }

    private record Subject(OAuthBearerTokenCallback token, SaslExtensions extensions)
            implements AuthenticateCallbackHandler {
        @Override
        public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) { }

        @Override
        public void handle(javax.security.auth.callback.Callback[] callbacks) {
            for (var callback : callbacks) {
                if (callback instanceof OAuthBearerTokenCallback wanted) wanted.token(token.token());
                if (callback instanceof SaslExtensionsCallback wanted) wanted.extensions(extensions);
            }
        }

        @Override
        public void close() { }
    }

    private static Map<String, ?> configs(Map<String, String> set) {
        // Kafka opens only what the virtual machine's owner has listed.
        String urls = set.entrySet().stream().filter(each -> each.getKey().endsWith(".url")).map(Map.Entry::getValue)
            .collect(Collectors.joining(","));
        System.setProperty(BrokerSecurityConfigs.ALLOWED_SASL_OAUTHBEARER_URLS_CONFIG, urls);
        System.setProperty(BrokerSecurityConfigs.ALLOWED_SASL_OAUTHBEARER_FILES_CONFIG, urls);
        ConfigDef definition = new ConfigDef(BrokerSecurityConfigs.CONFIG_DEF);
        return definition.parse(set).entrySet().stream().filter(each -> each.getValue() != null)
            .collect(Collectors.toMap(Map.Entry::getKey, Map.Entry::getValue));
    }

    private static List<AppConfigurationEntry> entries(Map<String, String> options) {
        return List.of(new AppConfigurationEntry("org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
            AppConfigurationEntry.LoginModuleControlFlag.REQUIRED, options));
    }

    private static String encode(byte[] bytes) {
        return Base64.getEncoder().encodeToString(bytes);
    }
}
