// Spring Session: sessions with an index and events of their end, by Lettuce, before and after the kill. It
// sets notify-keyspace-events when it starts; after a kill of the server that comes from its settings.
// packages: org.springframework.session:spring-session-data-redis io.lettuce:lettuce-core
// packages: jakarta.servlet:jakarta.servlet-api org.springframework:spring-web
// kill: 40
// server: --notify-keyspace-events Egx
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentSkipListSet;
import org.springframework.context.ApplicationListener;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.session.FindByIndexNameSessionRepository;
import org.springframework.session.Session;
import org.springframework.session.data.redis.config.annotation.web.http.EnableRedisIndexedHttpSession;
import org.springframework.session.events.SessionExpiredEvent;

public class Main {
    static final Set<String> ended = new ConcurrentSkipListSet<>();

    @Configuration
    @EnableRedisIndexedHttpSession(maxInactiveIntervalInSeconds = 600)
    static class Settings {
        @Bean
        LettuceConnectionFactory connectionFactory() {
            return new LettuceConnectionFactory("127.0.0.1", Journal.PORT);
        }

        @Bean
        ApplicationListener<SessionExpiredEvent> listener() {
            return event -> ended.add(event.getSessionId());
        }
    }

    static <S extends Session> void run(FindByIndexNameSessionRepository<S> sessions) throws Exception {
        String index = FindByIndexNameSessionRepository.PRINCIPAL_NAME_INDEX_NAME;
        List<String> names = new ArrayList<>();
        for (int i = 0; i < 60; i++) {
            int number = i;
            Journal.waitFor(() -> {
                S session = sessions.createSession();
                session.setAttribute("number", number);
                session.setAttribute(index, "user" + number);
                sessions.save(session);
                names.add(session.getId());
                return true;
            });
            Journal.write("done", i);
            Thread.sleep(20);
        }
        Journal.waitFor(Journal::startedAgain);
        Journal.waitFor(() -> sessions.findById(names.get(0)) != null);
        for (int i = 0; i < 60; i++) {
            S session = sessions.findById(names.get(i));
            Journal.expect(session != null && session.<Integer>getAttribute("number") == i, "a session is missing");
            Journal.expect(sessions.findByPrincipalName("user" + i).containsKey(names.get(i)), "the index lacks one");
        }
        S brief = sessions.createSession();
        brief.setMaxInactiveInterval(Duration.ofSeconds(1));
        sessions.save(brief);
        // The event comes from the server: its keyspace notifications.
        Journal.waitFor(() -> ended.contains(brief.getId()));
        Journal.expect(sessions.findById(brief.getId()) == null, "a session has not expired");
        sessions.deleteById(names.get(1));
        Journal.expect(sessions.findById(names.get(1)) == null, "a session was not deleted");
        Journal.expect(sessions.findByPrincipalName("user1").isEmpty(), "the index has a deleted session");
    }

    @SuppressWarnings("unchecked")
    public static void main(String[] args) throws Exception {
        var context = new AnnotationConfigApplicationContext(Settings.class);
        run(context.getBean(FindByIndexNameSessionRepository.class));
        System.out.println("60 sessions found by name and by user, an event of expiry");
        System.exit(0);
    }
}
