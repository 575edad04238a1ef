//! Scripts: replies, effects, and refusals.

use super::*;

/// A request of the given words.
pub(super) fn request(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
    bytes
}

/// Says requests as a client; each reply belongs to one request.
pub(super) fn says(house: &mut House, client: &mut Conversation, requests: &[(&[&str], &str)]) {
    for (words, expected) in requests {
        let said = house.say(client, &request(words));
        assert_eq!(said.trim_end(), *expected, "{words:?}");
    }
}

/// The replies of scripts without keys and arguments.
pub(super) fn scripts(house: &mut House, client: &mut Conversation, all: &[(&str, &str)]) {
    for (body, expected) in all {
        let said = house.say(client, &request(&["EVAL", body, "0"]));
        // Behind the error there are the digest and the line.
        let said = said.split(" script: ").next().unwrap_or_default();
        assert_eq!(said.trim_end(), *expected, "{body}");
    }
}

#[test]
fn values_become_replies_as_in_redis() {
    let mut house = House::new(false);
    let mut client = house.client();
    scripts(
        &mut house,
        &mut client,
        &[
            ("return 3.99", ":3"),
            ("return -3.9", ":-3"),
            ("return 1/0", ":-9223372036854775808"),
            ("return true", ":1"),
            ("return false", "$-1"),
            ("return nil", "$-1"),
            ("return", "$-1"),
            ("return {1,2,nil,4}", "*2 :1 :2"),
            ("return {1,{2,'x'},false}", "*3 :1 *2 :2 $1 x $-1"),
            ("return {ok='fine'}", "+fine"),
            ("return {err='a b'}", "-a b"),
            ("return {double=3.5}", "$3 3.5"),
            ("return {map={a=1}}", "*2 $1 a :1"),
            ("return {set={a=true}}", "*1 $1 a"),
            ("return {big_number='123'}", "$3 123"),
            ("return {verbatim_string={format='txt',string='x'}}", "$1 x"),
            ("return function() end", "$-1"),
            ("local t = {} t[1] = t return t", "-ERR reached lua stack limit"),
            ("return redis.call('set','k',0.1)", "+OK"),
            ("return redis.call('get','k')", "$19 0.10000000000000001"),
            ("return redis.call('get','nosuch') == false", ":1"),
            ("return type(redis.call('type','k').ok)", "$6 string"),
            ("redis.setresp(3) return redis.call('hgetall','nosuch')", "*0"),
            ("redis.setresp(3) return redis.call('get','nosuch') == nil", ":1"),
            ("return redis.sha1hex('')", "$40 da39a3ee5e6b4b0d3255bfef95601890afd80709"),
        ],
    );
    let said = house.say(&mut client, b"HELLO 3\r\n");
    assert!(said.starts_with("%7"), "{said}");
    scripts(
        &mut house,
        &mut client,
        &[
            ("return true", ":1"),
            ("redis.setresp(3) return true", "#t"),
            ("return {double=3.5}", ",3.5"),
            ("return {map={a=1}}", "%1 $1 a :1"),
            ("return nil", "_"),
        ],
    );
}

#[test]
fn errors_say_what_and_where() {
    let mut house = House::new(false);
    let mut client = house.client();
    says(
        &mut house,
        &mut client,
        &[
            (&["SET", "s", "abc"], "+OK"),
            (
                &["EVAL", "error('x')", "0"],
                "-ERR user_script:1: x script: 9851144f39f03a0d597a980c5aa79c80cb696891, on \
                 @user_script:1.",
            ),
            (
                &[
                    "EVAL",
                    "local function f()\n return redis.call('incr','s')\nend\n return f()",
                    "0",
                ],
                "-ERR value is not an integer or out of range script: \
                 1ea201adef828641c3ab282e47149d5216e1d3b3, on @user_script:2.",
            ),
            (
                &["EVAL", "return foo(", "0"],
                "-ERR Error compiling script (new function): user_script:1: unexpected symbol near \
                 '<eof>'",
            ),
            (&["EVAL", "return 1", "-1"], "-ERR Number of keys can't be negative"),
            (
                &["EVAL", "return 1", "2", "a"],
                "-ERR Number of keys can't be greater than number of args",
            ),
            (&["EVAL", "return 1", "x"], "-ERR value is not an integer or out of range"),
            (&["EVALSHA", "abc", "0"], "-NOSCRIPT No matching script. Please use EVAL."),
        ],
    );
    scripts(
        &mut house,
        &mut client,
        &[
            ("return redis.call('nosuch')", "-ERR Unknown Redis command called from script"),
            ("return redis.pcall('incr','s')", "-ERR value is not an integer or out of range"),
            ("local ok, e = pcall(redis.call,'incr','s') return type(e)", "$6 string"),
            ("return redis.call('multi')", "-ERR This Redis command is not allowed from script"),
            (
                "return redis.call('blpop','l',0)",
                "-ERR This Redis command is not allowed from script",
            ),
            (
                "return redis.call({})",
                "-ERR Lua redis lib command arguments must be strings or integers",
            ),
            ("x = 1", "-ERR user_script:1: Attempt to modify a readonly table"),
            (
                "return x",
                "-ERR user_script:1: Script attempted to access nonexistent global variable 'x'",
            ),
            ("string.rep = nil", "-ERR user_script:1: Attempt to modify a readonly table"),
            ("rawset(_G, 'x', 1)", "-ERR Attempt to modify a readonly table"),
            (
                "return cjson.decode('x')",
                "-ERR user_script:1: Expected value but found invalid token at character 1",
            ),
            (
                "return struct.pack('q', 1)",
                "-ERR user_script:1: bad argument #1 to 'pack' (invalid format option 'q')",
            ),
        ],
    );
}

/// An error keeps earlier writes, unless the client or the script wants all or nothing.
#[test]
fn an_error_keeps_what_was_done_unless_it_is_to_be_undone() {
    let mut house = House::new(false);
    let mut client = house.client();
    let fails = |key: &str| format!("redis.call('set','{key}','1') error('after')");
    let said = house.say(&mut client, &request(&["EVAL", &fails("kept"), "0"]));
    assert!(said.starts_with("-ERR user_script:1: after"), "{said}");
    let rolls_back = format!("#!lua flags=rollback\n{}", fails("undone"));
    house.say(&mut client, &request(&["EVAL", &rolls_back, "0"]));
    house.say(&mut client, b"HYADES.ROLLBACK ON\r\n");
    house.say(&mut client, &request(&["EVAL", &fails("undone"), "0"]));
    says(
        &mut house,
        &mut client,
        &[
            (&["EXISTS", "kept"], ":1"),
            (&["EXISTS", "undone"], ":0"),
            (&["MULTI"], "+OK"),
            (&["SET", "undone", "1"], "+QUEUED"),
            (&["EVAL", "error('x')", "0"], "+QUEUED"),
        ],
    );
    let said = house.say(&mut client, b"EXEC\r\n");
    assert!(said.starts_with("-EXECABORT nothing was done, since EVAL, number 2"), "{said}");
    says(&mut house, &mut client, &[(&["EXISTS", "undone"], ":0")]);
}

#[test]
fn a_script_is_one_transaction_of_all_it_does() {
    let mut house = House::new(false);
    let (mut client, mut other) = (house.client(), house.client());
    let transfer = "local from = redis.call('decrby', KEYS[1], ARGV[1]) \
                    if from < 0 then redis.call('incrby', KEYS[1], ARGV[1]) return 0 end \
                    redis.call('incrby', KEYS[2], ARGV[1]) return 1";
    says(
        &mut house,
        &mut client,
        &[
            (&["MSET", "a", "10", "b", "0"], "+OK"),
            (&["EVAL", transfer, "2", "a", "b", "7"], ":1"),
            (&["EVAL", transfer, "2", "a", "b", "7"], ":0"),
            (&["MGET", "a", "b"], "*2 $1 3 $1 7"),
            (&["SCRIPT", "EXISTS", "da39a3ee5e6b4b0d3255bfef95601890afd80709"], "*1 :0"),
            // Of another database, only while the script runs.
            (
                &["EVAL", "redis.call('select', 3) return redis.call('set', 'there', '1')", "0"],
                "+OK",
            ),
            (&["EXISTS", "there"], ":0"),
            (&["SELECT", "3"], "+OK"),
            (&["EXISTS", "there"], ":1"),
            (&["SELECT", "0"], "+OK"),
            (&["EVAL_RO", "return redis.call('get', 'a')", "0"], "$1 3"),
        ],
    );
    // A watched key, written by a script.
    says(&mut house, &mut other, &[(&["WATCH", "a"], "+OK"), (&["MULTI"], "+OK")]);
    says(&mut house, &mut client, &[(&["EVAL", "return redis.call('incr','a')", "0"], ":4")]);
    says(&mut house, &mut other, &[(&["GET", "a"], "+QUEUED"), (&["EXEC"], "*-1")]);
}

#[test]
fn loaded_scripts_are_known_until_they_are_flushed() {
    let mut house = House::new(false);
    let mut client = house.client();
    let sha = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    says(
        &mut house,
        &mut client,
        &[
            (&["SCRIPT", "LOAD", "return 1"], &format!("$40 {sha}")),
            (&["EVALSHA", sha, "0"], ":1"),
            (&["EVALSHA", &sha.to_uppercase(), "0"], ":1"),
            (&["SCRIPT", "EXISTS", sha, "x"], "*2 :1 :0"),
            (&["MULTI"], "+OK"),
            (&["EVALSHA", sha, "0"], "+QUEUED"),
            (&["SCRIPT", "FLUSH"], "+QUEUED"),
            (&["EVALSHA", sha, "0"], "+QUEUED"),
            (&["EXEC"], "*3 :1 +OK -NOSCRIPT No matching script. Please use EVAL."),
            (&["SCRIPT", "EXISTS", sha], "*1 :0"),
            (&["EVAL", "return 1", "0"], ":1"),
            (&["EVALSHA", sha, "0"], ":1"),
            (&["SCRIPT", "FLUSH", "SYNC"], "+OK"),
            (&["EVALSHA", sha, "0"], "-NOSCRIPT No matching script. Please use EVAL."),
            (&["SCRIPT", "FLUSH", "x"], "-ERR SCRIPT FLUSH only support SYNC|ASYNC option"),
            (&["SCRIPT", "KILL"], "-NOTBUSY No scripts in execution right now."),
            (&["SCRIPT", "NO"], "-ERR unknown subcommand 'NO'. Try SCRIPT HELP."),
        ],
    );
}

/// Messages of a script are delivered when its writes are on disk.
#[test]
fn messages_of_a_script_leave_with_its_reply() {
    let mut house = House::new(false);
    let (mut client, mut listener) = (house.client(), house.client());
    house.say(&mut listener, b"SUBSCRIBE c\r\n");
    let body = "redis.call('set','k','1') return redis.call('publish','c','hello')";
    says(&mut house, &mut client, &[(&["EVAL", body, "0"], ":1")]);
    house.say(&mut client, b"");
    assert_eq!(house.say(&mut listener, b"").trim_end(), "*3 $7 message $1 c $5 hello");
    // Nothing of an undone script.
    let body = "#!lua flags=rollback\nredis.call('publish','c','no') error('x')";
    house.say(&mut client, &request(&["EVAL", body, "0"]));
    house.say(&mut client, b"");
    assert_eq!(house.say(&mut listener, b""), "");
}

#[test]
fn a_script_does_what_its_user_may() {
    let mut house = House::new(false);
    let (mut admin, mut client) = (house.client(), house.client());
    house.say(&mut admin, b"ACL SETUSER u on nopass ~mine:* &* +@all -flushall\r\n");
    house.say(&mut client, b"AUTH u x\r\n");
    scripts(
        &mut house,
        &mut client,
        &[
            ("return redis.call('set','mine:a','1')", "+OK"),
            (
                "return redis.call('set','other','1')",
                "-NOPERM The user executing the script can't access at least one of the keys \
                 mentioned in the command arguments",
            ),
            (
                "return redis.call('flushall')",
                "-NOPERM The user executing the script can't run this command or subcommand",
            ),
            (
                "return redis.call('sort','mine:l','by','nosort','get','secret:*')",
                "-ERR GET option of SORT denied due to insufficient ACL permissions.",
            ),
            ("return redis.call('sort','mine:l')", "*0"),
            ("return redis.acl_check_cmd('set','mine:a','1')", ":1"),
            ("return redis.acl_check_cmd('set','other','1')", "$-1"),
            (
                "return redis.acl_check_cmd('nosuch')",
                "-ERR Invalid command passed to redis.acl_check_cmd()",
            ),
        ],
    );
    says(
        &mut house,
        &mut client,
        &[
            (
                &["EVAL", "return 1", "1", "other"],
                "-NOPERM this user has no permissions to access one of the keys used as arguments",
            ),
            (&["EVAL", "return 1", "1", "mine:a"], ":1"),
        ],
    );
    let log = house.say(&mut admin, b"ACL LOG\r\n");
    for (context, object) in [("toplevel", "other"), ("lua", "flushall"), ("lua", "other")] {
        let entry =
            format!("context ${} {context} $6 object ${} {object} ", context.len(), object.len());
        assert!(log.contains(&entry), "{entry}: {log}");
    }
}

/// The replies of the libraries; each line is also the reply of redis-server 7.0.15.
#[test]
fn libraries_are_those_of_redis() {
    let mut house = House::new(false);
    let mut client = house.client();
    scripts(
        &mut house,
        &mut client,
        &[
            ("return cjson.encode({1,2,{a=1}})", "$13 [1,2,{\"a\":1}]"),
            ("return cjson.encode({})", "$2 {}"),
            ("return cjson.encode('a/\"\\\\\\n')", "$11 \"a\\/\\\"\\\\\\n\""),
            ("return cjson.encode(1/3)", "$16 0.33333333333333"),
            ("return cjson.decode('[1,2.5,null]')[3] == cjson.null", ":1"),
            ("return cjson.decode('\"\\\\u00e9\\\\ud83d\\\\ude00\"')", "$6 é😀"),
            ("return bit.tohex(65535, 4)", "$4 ffff"),
            ("return bit.tobit(4294967297)", ":1"),
            ("return bit.arshift(-8, 1)", ":-4"),
            ("return struct.size('bi!8d')", ":16"),
            ("return {struct.unpack('Bc0', '\\2abc')}", "*2 $2 ab :4"),
            ("return cmsgpack.unpack(cmsgpack.pack({1,'x'}))", "*2 :1 $1 x"),
            ("return {string.find('hello', '(l)(l)')}", "*4 :3 :4 $1 l $1 l"),
            (
                "return {string.gsub('hello world', '%w+', '%0 %0', 1)}",
                "*2 $17 hello hello world :1",
            ),
            ("return {string.gsub('hello', '', '-')}", "*2 $11 -h-e-l-l-o- :6"),
            ("return {pcall(error, 'x')}", "*2 $-1 $1 x"),
            ("return loadstring('return 5')()", ":5"),
            ("return tostring(2^53)", "$18 9.007199254741e+15"),
            (
                "return type(os)",
                "-ERR user_script:1: Script attempted to access nonexistent global variable 'os'",
            ),
        ],
    );
}

/// KEYS sees the script's writes, as in Redis: dramatiq and channels_redis call it.
#[test]
fn keys_are_listed_within_a_script() {
    let mut house = House::new(false);
    let mut client = house.client();
    house.say(&mut client, b"MSET a:1 x a:2 x b x\r\nSELECT 1\r\nSET a:3 x\r\nSELECT 0\r\n");
    let sorted = "table.sort(k) return k";
    scripts(
        &mut house,
        &mut client,
        &[
            (&format!("local k = redis.call('keys','a:*') {sorted}"), "*2 $3 a:1 $3 a:2"),
            (
                &format!(
                    "redis.call('del','a:1') redis.call('set','a:4','x') \
                          local k = redis.call('KEYS','a*') {sorted}"
                ),
                "*2 $3 a:2 $3 a:4",
            ),
            ("redis.call('select','1') return redis.call('keys','*')", "*1 $3 a:3"),
            ("return redis.call('keys','none')", "*0"),
        ],
    );
    // More keys than a loop walks over at once.
    let many = "for i = 1, 50000 do redis.call('set','k'..i,i) end return #redis.call('keys','k*')";
    scripts(
        &mut house,
        &mut client,
        &[(many, ":50000"), ("return #redis.call('keys','k*')", ":50000")],
    );
}

/// A flush of a script, or an undone flush, holds for the commands behind the script.
#[test]
fn commands_behind_a_script_that_flushes_find_their_database() {
    let mut house = House::new(false);
    let mut client = house.client();
    let undone = "#!lua flags=rollback\nredis.call('flushdb') redis.call('set','b','1') error('x')";
    let from_other = "redis.call('select','1') redis.call('flushall')";
    let swapped = "redis.call('swapdb','0','1')";
    let mut said = |script: &str| {
        house.say(&mut client, b"FLUSHALL\r\nSET a 1\r\n");
        let mut all = b"MULTI\r\n".to_vec();
        all.extend(request(&["EVAL", script, "0"]));
        all.extend(b"GET a\r\nSET c 3\r\nEXEC\r\n");
        house.say(&mut client, &all);
        let kept = house.say(&mut client, b"MGET a b c\r\nSELECT 1\r\nMGET a c\r\nSELECT 0\r\n");
        kept.trim_end().to_string()
    };
    assert_eq!(said(undone), "*3 $1 1 $-1 $1 3 +OK *2 $-1 $-1 +OK");
    assert_eq!(said(from_other), "*3 $-1 $-1 $1 3 +OK *2 $-1 $-1 +OK");
    assert_eq!(said(swapped), "*3 $-1 $-1 $1 3 +OK *2 $1 1 $-1 +OK");
}

/// Tables of any number of elements: as many values at once are too many for the interpreter.
#[test]
fn large_tables_are_replied_packed_and_passed() {
    let mut house = House::new(false);
    let mut client = house.client();
    let fill = "local t = {} for i = 1, 7000 do t[i] = 'x' .. i end ";
    let all = [
        (format!("{fill} return redis.call('rpush','l',unpack(t))"), ":7000"),
        (
            format!(
                "{fill} redis.call('rpush','l',unpack(t)) return #redis.call('lrange','l',0,-1)"
            ),
            ":14000",
        ),
        (
            "local m = {} for i = 1, 20000 do m['k' .. i] = 'v' .. i end \
          local n = 0 for k in pairs(cmsgpack.unpack(cmsgpack.pack(m))) do n = n + 1 end \
          for k in pairs(cjson.decode(cjson.encode(m))) do n = n + 1 end return n"
                .to_string(),
            ":40000",
        ),
    ];
    for (script, expected) in &all {
        scripts(&mut house, &mut client, &[(script, expected)]);
    }
    let said =
        house.say(&mut client, &request(&["EVAL", "return redis.call('lrange','l',0,-1)", "0"]));
    assert!(said.starts_with("*14000 $2 x1 ") && said.trim_end().ends_with("$5 x7000"));
    house.say(&mut client, b"HELLO 3\r\n");
    let map = "local m = {} for i = 1, 20000 do m['k' .. i] = 'v' .. i end ";
    for (kind, head) in [("map", "%20000 "), ("set", "~20000 ")] {
        let script = format!("{map} return {{{kind}=m}}");
        let said = house.say(&mut client, &request(&["EVAL", &script, "0"]));
        assert!(said.starts_with(head), "{}", &said[..40]);
    }
}

/// Messages are kept until the transaction ends: they count like the script's writes.
#[test]
fn a_script_that_publishes_without_end_is_ended() {
    let mut house = House::new(false);
    let mut client = house.client();
    let script = "local s = ('x'):rep(1000000) while true do redis.call('publish','c',s) end";
    let said = house.say(&mut client, &request(&["EVAL", script, "0"]));
    assert_eq!(said.trim_end(), "-ERR the transaction reads and writes more than 64 MiB");
}
