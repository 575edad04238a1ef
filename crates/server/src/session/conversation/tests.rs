//! Transcripts of conversations, without sockets and threads.

mod access;
mod blocking;
mod collections;
mod comparing;
mod debugging;
mod dumping;
mod durability;
mod events;
mod exporter;
mod field_times;
mod functions;
mod geo;
mod hyperloglogs;
mod introspection;
mod large;
mod large_strings;
mod limits;
mod log_bytes;
mod memory;
mod migrating;
mod migrating_out_of_step;
mod migrating_safely;
mod monitoring;
mod multi;
mod observing;
mod one_row;
mod pausing;
mod publishing;
mod rolling_back;
mod saving;
mod scanning;
mod script_details;
mod scripts;
mod streams;
mod strings_in_chunks;
mod tracking;
mod watching;
mod watching_large;

use super::*;
use crate::clients::Calls;
use crate::config::Settings;
use crate::data::Tables;
use crate::state::Opened;
use hyades::{CommitQueue, Database};
use proptest::prelude::*;
use std::task::Waker;
use tempfile::TempDir;

/// A database shared by conversations.
struct House {
    shared: Arc<Shared>,
    session: Session,
    queue: CommitQueue<(usize, u64)>,
    _dir: Option<TempDir>,
}

impl House {
    /// Makes a database, with a log written only by [`House::write_log`], if `stepped`.
    fn new(stepped: bool) -> House {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let settings = Settings::from_arguments(&["--enable-debug-command", "yes"]).unwrap();
        let shared = Shared::new(settings);
        let mut builder =
            Database::builder().log_settings(|log| log.research.stepped = stepped).streams(2);
        let tables = Tables::declare(&mut builder);
        let database = builder.open(dir.path()).unwrap();
        let (session, queue) = (database.session().unwrap(), database.commit_queue());
        assert!(shared.store.opened.set(Opened { database, tables }).is_ok());
        House { shared, session, queue, _dir: Some(dir) }
    }

    /// The same server for another thread.
    fn beside(&self) -> House {
        let database = &self.shared.store.opened.cloned().database;
        let (session, queue) = (database.session().unwrap(), database.commit_queue());
        House { shared: self.shared.clone(), session, queue, _dir: None }
    }

    fn client(&self) -> Conversation {
        self.client_since(0)
    }

    /// Makes a client that connected at the time `ms`, in milliseconds since 1970.
    fn client_since(&self, ms: i64) -> Conversation {
        let id = self.shared.clients.next_id();
        let addresses = ("127.0.0.1:1".to_string(), "127.0.0.1:2".to_string());
        let entry = ClientEntry::new(id, addresses, ms, Calls::new(Waker::noop().clone()));
        let entry = Arc::new(entry);
        self.shared.clients.add(entry.clone());
        Conversation::new(&self.shared.access, entry)
    }

    /// Runs the fed input, until there is nothing to run without an acknowledgement.
    fn run(&mut self, conversation: &mut Conversation, number: usize) {
        loop {
            let mut parked = Vec::new();
            let (session, snapshot) = (Some(&mut self.session), None);
            let mut turn = Turn { shared: &self.shared, session, parked: &mut parked, snapshot };
            let next = conversation.run(&mut turn);
            for (ticket, mark) in parked {
                self.queue.push(ticket, (number, mark));
            }
            if let Some(job) = conversation.take_job() {
                let reply = job.run(&self.shared, conversation.is_resp3());
                if let Some((ticket, mark)) = conversation.job_done(&self.shared, reply) {
                    self.queue.push(ticket, (number, mark));
                }
            } else if next == Next::Wait || conversation.paused.is_some() {
                return;
            }
        }
    }

    fn write_log(&self) {
        let Opened { database, .. } = self.shared.store.opened.cloned();
        let log = database.log().unwrap();
        while (0..log.streams()).any(|stream| log.step(stream)) {}
    }

    /// Feeds a client's bytes and returns all replies, once the replies are durable.
    fn say(&mut self, conversation: &mut Conversation, bytes: &[u8]) -> String {
        String::from_utf8_lossy(&self.replies(conversation, bytes)).replace("\r\n", " ")
    }

    /// As [`House::say`], byte by byte.
    fn replies(&mut self, conversation: &mut Conversation, bytes: &[u8]) -> Vec<u8> {
        conversation.feed(bytes);
        let mut said = Vec::new();
        loop {
            self.run(conversation, 0);
            while !self.queue.is_empty() {
                self.queue.wait_for_one().unwrap();
                self.queue.drain(|(_, mark)| conversation.acknowledged(mark)).unwrap();
            }
            let output = conversation.output().to_vec();
            if output.is_empty() {
                return said;
            }
            conversation.sent(output.len());
            said.extend_from_slice(&output);
        }
    }
}

fn take(conversation: &mut Conversation) -> String {
    let output = conversation.output().to_vec();
    conversation.sent(output.len());
    String::from_utf8_lossy(&output).replace("\r\n", " ")
}

/// Each line of the left is an inline command; the right is all replies of the command.
fn transcript(lines: &[(&str, &str)]) {
    let mut house = House::new(false);
    let mut client = house.client();
    for (line, expected) in lines {
        let said = house.say(&mut client, format!("{line}\r\n").as_bytes());
        assert_eq!(said.trim_end(), *expected, "{line}");
    }
}

#[test]
fn an_ok_leaves_when_it_is_durable_and_not_before() {
    let mut house = House::new(true);
    let (mut writer, mut reader) = (house.client(), house.client());
    writer.feed(b"SET a 1\r\n");
    house.run(&mut writer, 0);
    assert_eq!((take(&mut writer), house.queue.len()), (String::new(), 1));
    // Another client's reads of the write wait with it; the reply that a key does not exist waits
    // for nothing.
    reader.feed(b"GET b\r\n");
    house.run(&mut reader, 1);
    assert_eq!(take(&mut reader), "$-1 ");
    reader.feed(b"GET a\r\n");
    house.run(&mut reader, 1);
    assert_eq!(take(&mut reader), "");
    // An error is as good as a value.
    reader.feed(b"INCRBY a x\r\nSET a 1 NX\r\n");
    house.run(&mut reader, 1);
    assert_eq!(take(&mut reader), "");
    house.queue.drain(|_| panic!("nothing is durable")).unwrap();
    house.write_log();
    let (writer, reader) = (&mut writer, &mut reader);
    house
        .queue
        .drain(|(number, mark)| match number {
            0 => writer.acknowledged(mark),
            _ => reader.acknowledged(mark),
        })
        .unwrap();
    assert!(house.queue.is_empty());
    assert_eq!(take(writer), "+OK ");
    assert_eq!(take(reader), "$1 1 -ERR value is not an integer or out of range $-1 ");
    // Now the write is durable, and a read waits for nothing.
    reader.feed(b"GET a\r\n");
    house.run(reader, 1);
    assert_eq!(take(reader), "$1 1 ");
}

#[test]
fn leading_reads_do_not_wait_for_the_writes_behind_them() {
    let mut house = House::new(true);
    let mut client = house.client();
    client.feed(b"GET a\r\nEXISTS b\r\nSET a 1\r\nGET a\r\nPING\r\n");
    house.run(&mut client, 0);
    assert_eq!(take(&mut client), "$-1 :0 ");
    house.write_log();
    house.queue.drain(|(_, mark)| client.acknowledged(mark)).unwrap();
    assert_eq!(take(&mut client), "+OK $1 1 +PONG ");
}

#[test]
fn a_log_failure_is_told_to_those_that_wait() {
    let mut house = House::new(true);
    let mut client = house.client();
    client.feed(b"PING\r\nSET a 1\r\nSET b 1\r\n");
    house.run(&mut client, 0);
    let mut silent = house.client();
    silent.feed(b"CLIENT REPLY OFF\r\n");
    house.run(&mut silent, 1);
    let mut waiting = house.client();
    waiting.feed(b"BLPOP l 0\r\nSET d 1\r\n");
    house.run(&mut waiting, 1);
    let database = &house.shared.store.opened.cloned().database;
    database.log().unwrap().stop("the disk is gone");
    assert!(house.queue.drain(|_| panic!("nothing is durable")).is_err());
    client.fail(&house.shared);
    let said = take(&mut client);
    assert!(said.starts_with("+PONG -OUTCOMEUNKNOWN the log failed"), "{said}");
    assert_eq!(said.matches("OUTCOMEUNKNOWN").count(), 2);
    // The client is told of its later commands, and a client that waits for an element as well.
    client.feed(b"SET a 2\r\n");
    house.run(&mut client, 0);
    assert_eq!(take(&mut client), "-MISCONF the disk is gone ");
    waiting.fail(&house.shared);
    house.run(&mut waiting, 1);
    assert_eq!(take(&mut waiting), "-MISCONF the disk is gone -MISCONF the disk is gone ");
    silent.feed(b"SET c 1\r\n*1\r\nfoo\r\n");
    house.run(&mut silent, 1);
    assert_eq!(take(&mut silent), "");
    let mut other = house.client();
    other.feed(b"SET c 1\r\nPING\r\n");
    house.run(&mut other, 1);
    assert_eq!(take(&mut other), "-MISCONF the disk is gone -MISCONF the disk is gone ");
}

#[test]
fn without_a_database_most_commands_wait() {
    let mut house = House::new(false);
    let mut client = house.client();
    client.feed(b"SET a 1\r\nPING\r\nKEYS *\r\nCONFIG GET port\r\nSELECT 1\r\n");
    let mut parked = Vec::new();
    let mut turn =
        Turn { shared: &house.shared, session: None, parked: &mut parked, snapshot: None };
    client.run(&mut turn);
    assert_eq!(
        take(&mut client),
        "-LOADING the database is being opened +PONG -LOADING the database is being opened \
         *2 $4 port $4 6379 +OK "
    );
    assert_eq!(house.say(&mut client, b"SET a 1\r\n"), "+OK ");
}

#[test]
fn strings_and_numbers() {
    transcript(&[
        ("SET a 1", "+OK"),
        ("GET a", "$1 1"),
        ("INCRBY a 41", ":42"),
        ("INCRBYFLOAT a 0.5", "$4 42.5"),
        ("INCR a", "-ERR value is not an integer or out of range"),
        ("SET a b NX", "$-1"),
        ("SET a b XX GET", "$4 42.5"),
        ("SET a b NX XX", "-ERR syntax error"),
        ("SET a b EX 0", "-ERR invalid expire time in 'set' command"),
        ("SET a b EX x", "-ERR value is not an integer or out of range"),
        ("APPEND a cd", ":3"),
        ("OBJECT ENCODING a", "$3 raw"),
        ("GETRANGE a 1 -1", "$2 cd"),
        ("SUBSTR a -2 -1", "$2 cd"),
        ("SETRANGE a 4 x", ":5"),
        ("STRLEN a", ":5"),
        ("GETDEL a", "$5 bcd\0x"),
        ("GETSET a 5", "$-1"),
        ("OBJECT ENCODING a", "$3 int"),
        ("DECR a", ":4"),
        ("MSET a 1 b 2", "+OK"),
        ("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command"),
        ("MGET a b c", "*3 $1 1 $1 2 $-1"),
        ("MSETNX c 3 a 9", ":0"),
        ("SETNX c 3", ":1"),
        ("SETBIT bits 7 1", ":0"),
        ("GET bits", "$1 \u{1}"),
        ("GETBIT bits 7", ":1"),
        ("SET x ohmytext", "+OK"),
        ("SET y mynewtext", "+OK"),
        ("LCS x y", "$6 mytext"),
        ("LCS x y IDX MINMATCHLEN 4", "*4 $7 matches *1 *2 *2 :4 :7 *2 :5 :8 $3 len :6"),
        ("SET big 9223372036854775807", "+OK"),
        ("INCR big", "-ERR increment or decrement would overflow"),
        ("GET", "-ERR wrong number of arguments for 'get' command"),
        ("NOPE a", "-ERR unknown command 'NOPE', with args beginning with: 'a'"),
        (
            "PSYNC a b",
            "-ERR command 'PSYNC' is not supported: this server has no replicas; make backups with \
             HYADES.BACKUP, or copy the keys with MIGRATE",
        ),
    ]);
}

#[test]
fn keys_databases_and_expiry() {
    transcript(&[
        ("SET a 1 EX 100", "+OK"),
        ("TTL a", ":100"),
        ("EXPIRE a 50 GT", ":0"),
        ("EXPIRE a 200 GT", ":1"),
        (
            "EXPIRE a 200 NX GT",
            "-ERR NX and XX, GT or LT options at the same time are not compatible",
        ),
        ("EXPIRE a 9223372036854775", "-ERR invalid expire time in 'expire' command"),
        ("PERSIST a", ":1"),
        ("TTL a", ":-1"),
        ("TTL none", ":-2"),
        ("PEXPIREAT a 1", ":1"),
        ("EXISTS a", ":0"),
        ("DBSIZE", ":0"),
        ("MSET a 1 b 2 c 3", "+OK"),
        ("DBSIZE", ":3"),
        ("RENAME a d", "+OK"),
        ("RENAME a d", "-ERR no such key"),
        ("RENAMENX b c", ":0"),
        ("COPY b e DB 1", ":1"),
        ("COPY b b", "-ERR source and destination objects are the same"),
        ("MOVE c 1", ":1"),
        ("DEL b none", ":1"),
        ("KEYS *", "*1 $1 d"),
        ("SCAN 0", "*2 $1 0 *1 $1 d"),
        ("RANDOMKEY", "$1 d"),
        ("TYPE d", "+string"),
        ("SELECT 1", "+OK"),
        ("DBSIZE", ":2"),
        ("SWAPDB 0 1", "+OK"),
        ("DBSIZE", ":1"),
        ("SELECT 16", "-ERR DB index is out of range"),
        ("FLUSHDB", "+OK"),
        ("DBSIZE", ":0"),
        ("SELECT 0", "+OK"),
        ("EXISTS e c", ":2"),
        ("FLUSHALL ASYNC", "+OK"),
        ("EXISTS e c", ":0"),
        ("SET e 1", "+OK"),
        ("GET e", "$1 1"),
    ]);
}

#[test]
fn small_lists_and_sets() {
    transcript(&[
        ("RPUSH l b c", ":2"),
        ("LPUSH l a z", ":4"),
        ("LRANGE l 0 -1", "*4 $1 z $1 a $1 b $1 c"),
        ("LINDEX l -1", "$1 c"),
        ("LPOP l", "$1 z"),
        ("RPOP l 2", "*2 $1 c $1 b"),
        ("LLEN l", ":1"),
        ("GET l", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("RPOP l", "$1 a"),
        ("EXISTS l", ":0"),
        ("RPUSHX l a", ":0"),
        ("LPOP l 1", "*-1"),
        ("SADD s a b a", ":2"),
        ("SADD s b c", ":1"),
        ("SCARD s", ":3"),
        ("SMEMBERS s", "*3 $1 a $1 b $1 c"),
        ("SMISMEMBER s a x", "*2 :1 :0"),
        ("SRANDMEMBER none", "$-1"),
        ("SRANDMEMBER s 0", "*0"),
        ("SREM s a b x", ":2"),
        ("SRANDMEMBER s -3", "*3 $1 c $1 c $1 c"),
        ("MGET s none", "*2 $-1 $-1"),
        ("EXPIRE s 100", ":1"),
        ("SADD s d", ":1"),
        ("TTL s", ":100"),
        ("RPUSH s a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("SET s 1", "+OK"),
        ("TYPE s", "+string"),
    ]);
}

#[test]
fn the_connection() {
    transcript(&[
        ("PING", "+PONG"),
        ("ECHO \"a b\"", "$3 a b"),
        ("CLIENT SETNAME me", "+OK"),
        ("CLIENT GETNAME", "$2 me"),
        ("CLIENT ID", ":1"),
        ("CLIENT KILL TYPE normal SKIPME yes", ":0"),
        ("CLIENT KILL TYPE pubsub SKIPME no", ":0"),
        ("CLIENT KILL TYPE normal SKIPME maybe", "-ERR syntax error"),
        (
            "HELLO 3",
            "%7 $6 server $5 redis $7 version $5 7.2.0 $5 proto :3 $2 id :1 $4 mode \
            $10 standalone $4 role $6 master $7 modules *0",
        ),
        ("GET none", "_"),
        ("HELLO 4", "-NOPROTO unsupported protocol version"),
        ("RESET", "+RESET"),
        ("GET none", "$-1"),
        ("CLIENT REPLY OFF", ""),
        ("SET quiet 1", ""),
        ("PING", ""),
        ("CLIENT REPLY ON", "+OK"),
        ("CLIENT REPLY SKIP", ""),
        ("SET quieter 1", ""),
        ("MGET quiet quieter", "*2 $1 1 $1 1"),
        ("CONFIG SET maxclients 5", "+OK"),
        ("CONFIG GET maxcl*", "*2 $10 maxclients $1 5"),
        (
            "CONFIG SET streams 1",
            "-ERR CONFIG SET failed (possibly related to argument 'streams') - can't set immutable \
            config",
        ),
        ("CONFIG REWRITE x", "-ERR wrong number of arguments for 'config|rewrite' command"),
        ("CONFIG NOPE", "-ERR unknown subcommand 'NOPE'. Try CONFIG HELP."),
        ("CLIENT KILL", "-ERR wrong number of arguments for 'client|kill' command"),
        (
            "SLOWLOG GET a b",
            "-ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.",
        ),
        ("CONFIG SET nope 1", "-ERR Unknown option or number of arguments for CONFIG SET - 'nope'"),
        (
            "COMMAND INFO get",
            "*1 *10 $3 get :2 *2 +readonly +fast :1 :1 :1 *3 +@read +@string \
            +@fast *0 *1 *6 $5 flags *2 +RO +access $12 begin_search *4 $4 type $5 index $4 spec \
            *2 $5 index :1 $9 find_keys *4 $4 type $5 range $4 spec *6 $7 lastkey :0 $7 keystep \
            :1 $5 limit :0 *0",
        ),
        ("COMMAND GETKEYS MSET a 1 b 2", "*2 $1 a $1 b"),
        ("DEBUG PROTOCOL true", ":1"),
        ("MULTI", "+OK"),
        ("SET t 1", "+QUEUED"),
        ("INCR t", "+QUEUED"),
        ("INCRBY t x", "+QUEUED"),
        ("EXEC", "*3 +OK :2 -ERR value is not an integer or out of range"),
        ("MULTI", "+OK"),
        ("NOPE", "-ERR unknown command 'NOPE', with args beginning with:"),
        ("EXEC", "-EXECABORT Transaction discarded because of previous errors."),
        ("EXEC", "-ERR EXEC without MULTI"),
        ("QUIT", "+OK"),
        ("PING", ""),
    ]);
}

#[test]
fn an_error_takes_back_its_own_command_alone() {
    let mut house = House::new(false);
    let mut client = house.client();
    let long = "k".repeat(crate::data::keyspace::LONGEST_KEY + 1);
    let mset = format!(
        "*5\r\n$4\r\nMSET\r\n$1\r\nb\r\n$1\r\n1\r\n${}\r\n{long}\r\n$1\r\n1\r\n",
        long.len()
    );
    let input = format!("SET a 1\r\n{mset}SET c 1\r\nEXISTS a b c\r\nDBSIZE\r\n");
    let said = house.say(&mut client, input.as_bytes());
    assert_eq!(said, "+OK -ERR the key is longer than 1 MiB +OK :2 :2 ");
}

#[test]
fn what_is_no_request_ends_the_conversation_behind_what_was_right() {
    let mut house = House::new(false);
    let mut client = house.client();
    let said = house.say(&mut client, b"SET a 1\r\n*1\r\nfoo\r\nSET a 2\r\n");
    assert_eq!(said, "+OK -ERR Protocol error: expected '$', got 'f' ");
    assert!(client.is_closing());
    let mut other = house.client();
    assert_eq!(house.say(&mut other, b"GET a\r\n"), "$1 1 ");
}

fn command() -> impl Strategy<Value = String> {
    prop_oneof![
        (0..4, 0..9).prop_map(|(key, value)| format!("SET k{key} {value}")),
        (0..4).prop_map(|key| format!("GET k{key}")),
        (0..4).prop_map(|key| format!("INCR k{key}")),
        (0..4).prop_map(|key| format!("DEL k{key}")),
        (0..4).prop_map(|key| format!("APPEND k{key} x")),
        Just("PING".to_string()),
        Just("MULTI".to_string()),
        Just("EXEC".to_string()),
        Just("SELECT 1".to_string()),
        Just("FLUSHDB".to_string()),
        Just("DBSIZE".to_string()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// How commands fall into runs does not show in the replies.
    #[test]
    fn at_once_or_one_by_one(commands in proptest::collection::vec(command(), 1..30)) {
        let (mut together, mut apart) = (House::new(false), House::new(false));
        let (mut first, mut second) = (together.client(), apart.client());
        let all: String = commands.iter().map(|command| format!("{command}\r\n")).collect();
        let one_by_one: String = commands
            .iter()
            .map(|command| apart.say(&mut second, format!("{command}\r\n").as_bytes()))
            .collect();
        prop_assert_eq!(together.say(&mut first, all.as_bytes()), one_by_one);
    }
}
