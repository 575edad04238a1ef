//! Scripts over sockets: hostile scripts are contained, any script can be killed, and loaded
//! scripts are there after a restart.
#![allow(missing_docs, reason = "tests are named by what they promise")]

mod common;

use common::Served;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(100);

/// A request with these words.
fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

/// Sends a request, and returns the first bytes of the reply.
fn ask(stream: &mut TcpStream, words: &[&str]) -> String {
    stream.write_all(&request(words)).unwrap();
    let mut buffer = vec![0; 64 << 10];
    let read = stream.read(&mut buffer).unwrap();
    String::from_utf8_lossy(&buffer[..read]).into_owned()
}

/// Scripts that want all of the processors, the memory, the stack, or the sandbox.
const HOSTILE: &[&str] = &[
    "while true do end",
    "while true do pcall(function() while true do end end) end",
    "local function f() return f() end return f()",
    "local function f() return 1 + f() end return f()",
    "local t = {} for i = 1, 1e9 do t[i] = i end",
    "local s = 'x' while true do s = s .. s end",
    "return string.rep('x', 1e9)",
    "local t = {} for i = 1, 40 do t[i] = ('x'):rep(30000000) end",
    "return string.find(string.rep('a', 100000), string.rep('a*', 30) .. 'b')",
    "return string.match(string.rep('a', 20000), '.-.-.-.-b')",
    "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}) return t[1]",
    "coroutine.wrap(function() while true do end end)()",
    "local function f() return coroutine.wrap(function() return f() end)() end return f()",
    "local c = coroutine.create(function() while true do coroutine.yield() end end) \
     while true do coroutine.resume(c) end",
    "while true do redis.call('set', 'k', 'v') end",
    "while true do redis.pcall('nosuch') end",
    "for i = 1, 1e9 do redis.call('append', 'big', 'xxxxxxxxxxxxxxxxxxxxxxxxxxxx') end",
    "return loadstring('\\27Lua')",
    "return loadstring(string.rep('(', 100000))",
    "return cjson.decode(string.rep('[', 100000))",
    "local t = {} for i = 1, 100000 do t = {t} end return cjson.encode(t)",
    "local t = {} for i = 1, 100000 do t = {t} end return t",
    "return cmsgpack.unpack(string.rep('\\145', 100000))",
    "local t = {} for i = 1, 3e6 do t[i] = 3e6 - i end table.sort(t)",
    "return unpack({}, 1, 1e8)",
    "return tostring(setmetatable({}, {__tostring = function() while true do end end}))",
    "xpcall(function() error('x') end, function() while true do end end)",
    "xpcall(function() while true do end end, function() while true do end end)",
    "error(setmetatable({}, {__index = function() while true do end end}))",
    "for k in pairs(_G) do _G[k] = nil end",
    "getmetatable('').__index = nil",
    "#!lua flags=rollback\nredis.call('set', 'k', ('x'):rep(1e5)) local t = {} \
     for i = 1, 1e6 do t[i] = i .. redis.call('get', 'k') end",
    "#!lua flags=rollback\nfor i = 1, 1000 do redis.call('rpush', 'k', i) end local t = {} \
     for i = 1, 1e6 do t[i] = redis.call('lrange', 'k', 0, -1) end",
    "string.gsub(string.rep('x', 1e6), 'x', function(c) return string.rep(c, 1000) end)",
    "local t = {} t[1] = t t[2] = t return t",
    "cjson.encode_sparse_array(false, 0) return cjson.encode({[1999999999] = 1})",
    "local t = {1} for i = 1, 100 do t = {t, t} end return cjson.encode(t)",
    "cjson.decode_max_depth(2e9) return cjson.decode(string.rep('[', 7000))",
    "cjson.encode_max_depth(2e9) local t = {} for i = 1, 7000 do t = {t} end cjson.encode(t)",
    "local t = {1} for i = 1, 14 do t = {t, t, t, t, t, t, t, t} end return cmsgpack.pack(t)",
];

/// Each hostile script ends with an error, its effects are undone or bounded, and another client
/// goes on meanwhile.
#[test]
fn hostile_scripts_are_contained() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let served = Served::start(dir.path(), "--script-time-limit 300");
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut stream = served.connect(PATIENCE);
            let (mut replies, mut longest) = (0u64, Duration::ZERO);
            while !ended.load(Relaxed) {
                let began = Instant::now();
                assert_eq!(ask(&mut stream, &["SET", "other", "1"]), "+OK\r\n");
                longest = longest.max(began.elapsed());
                replies += 1;
            }
            (replies, longest)
        });
        for script in HOSTILE {
            let mut stream = served.connect(PATIENCE);
            let began = Instant::now();
            let reply = ask(&mut stream, &["EVAL", script, "0"]);
            // Most are errors; some find nothing to harm.
            let is_harmless = ["$-1", ":", "*"].iter().any(|head| reply.starts_with(head));
            assert!(reply.starts_with('-') || is_harmless, "{script}: {reply}");
            assert!(began.elapsed() < Duration::from_secs(30), "{script}: {:?}", began.elapsed());
        }
        ended.store(true, Relaxed);
        let (replies, longest) = other.join().unwrap();
        assert!(replies > 100, "another client got {replies} replies");
        assert!(longest < Duration::from_secs(5), "another client waited {longest:?}");
    });
    // The sandbox is unchanged, and scripts that ran too long have left nothing.
    let mut stream = served.connect(PATIENCE);
    let script = "return {type(redis.call), ('x'):rep(3), tostring(_G.string.rep ~= nil)}";
    let reply = ask(&mut stream, &["EVAL", script, "0"]);
    assert_eq!(reply, "*3\r\n$8\r\nfunction\r\n$3\r\nxxx\r\n$4\r\ntrue\r\n");
    assert_eq!(ask(&mut stream, &["EXISTS", "k", "big"]), ":0\r\n");
}

/// The remains of a script do not fail the next script: the garbage is collected.
#[test]
fn the_collector_goes_on_behind_an_error_of_loadstring() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let served = Served::start(dir.path(), "");
    let mut stream = served.connect(PATIENCE);
    let script = "pcall(loadstring, 'return 1', {}) pcall(load, function() end, {}) \
                  for i = 1, 2e6 do local t = {i} end return 1";
    assert_eq!(ask(&mut stream, &["EVAL", script, "0"]), ":1\r\n");
}

#[test]
fn a_script_is_killed_also_after_it_has_written() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let served = Served::start(dir.path(), "");
    let mut other = served.connect(PATIENCE);
    std::thread::scope(|scope| {
        let runs = scope.spawn(|| {
            let mut stream = served.connect(PATIENCE);
            ask(&mut stream, &["EVAL", "redis.call('set','k','1') while true do end", "0"])
        });
        let began = Instant::now();
        while ask(&mut other, &["SCRIPT", "KILL"]) != "+OK\r\n" {
            assert!(began.elapsed() < PATIENCE, "the script never began");
            std::thread::sleep(Duration::from_millis(5));
        }
        let reply = runs.join().unwrap();
        assert!(reply.contains("Script killed by user with SCRIPT KILL"), "{reply}");
    });
    assert_eq!(ask(&mut other, &["EXISTS", "k"]), ":0\r\n");
    let reply = ask(&mut other, &["SCRIPT", "KILL"]);
    assert_eq!(reply, "-NOTBUSY No scripts in execution right now.\r\n");
}

#[test]
fn loaded_scripts_are_there_after_a_restart() {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    {
        let served = Served::start(dir.path(), "");
        let mut stream = served.connect(PATIENCE);
        let reply = ask(&mut stream, &["SCRIPT", "LOAD", "return 1"]);
        assert_eq!(reply, format!("$40\r\n{sha}\r\n"));
        assert_eq!(ask(&mut stream, &["EVAL", "return 2", "0"]), ":2\r\n");
    }
    let served = Served::start(dir.path(), "");
    let mut stream = served.connect(PATIENCE);
    assert_eq!(ask(&mut stream, &["EVALSHA", sha, "0"]), ":1\r\n");
    let told = ask(&mut stream, &["INFO", "memory"]);
    assert!(told.contains("number_of_cached_scripts:1\r\n"), "{told}");
}

/// Transfers by scripts between few accounts, from many clients: each is a transaction, so the sum
/// stays, also under conflicts.
#[test]
fn scripts_on_the_same_keys_are_serializable() {
    const CLIENTS: usize = 8;
    const TRANSFERS: usize = 200;
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let served = Served::start(dir.path(), "");
    let transfer = "local n = redis.call('get', KEYS[1]) \
                    redis.call('set', KEYS[1], n - ARGV[1]) \
                    redis.call('incrby', KEYS[2], ARGV[1]) return redis.call('incr', 'count')";
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let served = &served;
            scope.spawn(move || {
                let mut stream = served.connect(PATIENCE);
                for number in 0..TRANSFERS {
                    let (from, to) = ((client + number) % 3, (client + number + 1) % 3);
                    let (from, to) = (format!("a{from}"), format!("a{to}"));
                    ask(&mut stream, &["SETNX", &from, "0"]);
                    let reply = ask(&mut stream, &["EVAL", transfer, "2", &from, &to, "5"]);
                    assert!(reply.starts_with(':'), "{reply}");
                }
            });
        }
    });
    let mut stream = served.connect(PATIENCE);
    let sum = "return redis.call('get','a0') + redis.call('get','a1') + redis.call('get','a2')";
    assert_eq!(ask(&mut stream, &["EVAL", sum, "0"]), ":0\r\n");
    let count = ask(&mut stream, &["GET", "count"]);
    assert!(count.ends_with(&format!("{}\r\n", CLIENTS * TRANSFERS)), "{count}");
}

/// A transaction that runs again publishes once: scripts that take long meet conflicts.
#[test]
fn what_a_script_publishes_comes_once_however_often_it_runs() {
    const CLIENTS: usize = 4;
    const SCRIPTS: usize = 6;
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let served = Served::start(dir.path(), "");
    let script = "redis.call('publish','news',ARGV[1]) \
                  local n = redis.call('get','hot') or 0 \
                  for i = 1, 400000 do n = n + 0 end \
                  for i = 1, 40 do redis.call('set','hot',n+1) end \
                  return redis.status_reply('done')";
    let mut listener = served.connect(PATIENCE);
    assert!(ask(&mut listener, &["SUBSCRIBE", "news"]).contains("subscribe"));
    std::thread::scope(|scope| {
        for client in 0..CLIENTS {
            let served = &served;
            scope.spawn(move || {
                let mut stream = served.connect(PATIENCE);
                for number in 0..SCRIPTS {
                    let name = format!("<{client}.{number}>");
                    assert_eq!(ask(&mut stream, &["EVAL", script, "0", &name]), "+done\r\n");
                }
            });
        }
    });
    assert!(ask(&mut served.connect(PATIENCE), &["PUBLISH", "news", "<end>"]).starts_with(':'));
    let mut heard = Vec::new();
    while !heard.ends_with(b"<end>\r\n") {
        let mut buffer = [0; 4096];
        let read = listener.read(&mut buffer).unwrap();
        heard.extend_from_slice(&buffer[..read]);
    }
    let heard = String::from_utf8(heard).unwrap();
    for client in 0..CLIENTS {
        for number in 0..SCRIPTS {
            let name = format!("<{client}.{number}>");
            assert_eq!(heard.matches(&name).count(), 1, "{name}");
        }
    }
    let sum = ask(&mut served.connect(PATIENCE), &["GET", "hot"]);
    assert_eq!(sum, format!("$2\r\n{}\r\n", CLIENTS * SCRIPTS));
}
