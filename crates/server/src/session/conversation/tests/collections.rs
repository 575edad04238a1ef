//! Transcripts of commands on hashes, sets, sorted sets, lists and bits.

use super::*;
use crate::catalogue::{self, Command, Phase};

#[test]
fn hashes() {
    transcript(&[
        ("HSET h a 1 b 2", ":2"),
        ("HSET h b 3 c", "-ERR wrong number of arguments for 'hset' command"),
        ("HMSET h b 3 c 4", "+OK"),
        ("HSETNX h c 5", ":0"),
        ("HGET h c", "$1 4"),
        ("HMGET h a x", "*2 $1 1 $-1"),
        ("HGETALL h", "*6 $1 a $1 1 $1 b $1 3 $1 c $1 4"),
        ("HKEYS h", "*3 $1 a $1 b $1 c"),
        ("HVALS h", "*3 $1 1 $1 3 $1 4"),
        ("HINCRBY h a 41", ":42"),
        ("HINCRBYFLOAT h a 0.5", "$4 42.5"),
        ("HINCRBY h a 1", "-ERR hash value is not an integer"),
        ("HSTRLEN h a", ":4"),
        ("HEXISTS h x", ":0"),
        ("HRANDFIELD h -2 WITHVALUES WITHVALUES", "-ERR syntax error"),
        ("HDEL h a b x", ":2"),
        ("HRANDFIELD h -2 WITHVALUES", "*4 $1 c $1 4 $1 c $1 4"),
        ("HSCAN h 0 MATCH c*", "*2 $1 0 *2 $1 c $1 4"),
        ("TYPE h", "+hash"),
        ("HLEN h", ":1"),
        ("LPUSH h a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
        ("HDEL h c", ":1"),
        ("EXISTS h", ":0"),
    ]);
}

#[test]
fn sorted_sets() {
    transcript(&[
        ("ZADD z 1 a 2 b 3 c", ":3"),
        ("ZADD z NX GT 1 a", "-ERR GT, LT, and/or NX options at the same time are not compatible"),
        ("ZADD z XX CH 5 a 9 x", ":1"),
        ("ZADD z INCR -4.5 a", "$3 0.5"),
        ("ZADD z GT INCR -1 a", "$-1"),
        ("ZRANGE z 0 -1 WITHSCORES", "*6 $1 a $3 0.5 $1 b $1 2 $1 c $1 3"),
        ("ZRANGE z (0.5 +inf BYSCORE LIMIT 1 5", "*1 $1 c"),
        ("ZRANGE z 0 1 REV", "*2 $1 c $1 b"),
        ("ZRANGE z [a (c BYLEX", "*2 $1 a $1 b"),
        ("ZREVRANGEBYSCORE z 3 (0.5", "*2 $1 c $1 b"),
        ("ZCOUNT z -inf 2", ":2"),
        ("ZRANK z c", ":2"),
        ("ZREVRANK z c", ":0"),
        ("ZSCORE z none", "$-1"),
        ("ZADD z nan a", "-ERR value is not a valid float"),
        ("ZADD i inf a", ":1"),
        ("ZINCRBY i -inf a", "-ERR resulting score is not a number (NaN)"),
        ("SADD s a c d", ":3"),
        ("ZUNIONSTORE u 2 z s WEIGHTS 2 1", ":4"),
        ("ZRANGE u 0 -1 WITHSCORES", "*8 $1 d $1 1 $1 a $1 2 $1 b $1 4 $1 c $1 7"),
        ("ZINTER 2 z s AGGREGATE MAX WITHSCORES", "*4 $1 a $1 1 $1 c $1 3"),
        ("ZDIFF 2 z s", "*1 $1 b"),
        ("ZINTERCARD 2 z s LIMIT 1", ":1"),
        ("ZINTERCARD 5 z s", "-ERR syntax error"),
        ("ZCOUNT z ( 0x2", ":2"),
        ("ZCOUNT z 0x2 1e400", ":2"),
        ("ZCOUNT z nan 1", "-ERR min or max is not a float"),
        ("ZRANGESTORE r z 0 0", ":1"),
        ("ZPOPMAX z", "*2 $1 c $1 3"),
        ("ZMPOP 2 none z MIN", "*2 $1 z *1 *2 $1 a $3 0.5"),
        ("BZPOPMIN none z 0", "*3 $1 z $1 b $1 2"),
        ("EXISTS z", ":0"),
        ("ZREMRANGEBYSCORE u (1 4", ":2"),
        ("ZSCAN u 0", "*2 $1 0 *4 $1 d $1 1 $1 c $1 7"),
        (
            "HELLO 3",
            "%7 $6 server $5 redis $7 version $5 7.2.0 $5 proto :3 $2 id :1 $4 mode \
            $10 standalone $4 role $6 master $7 modules *0",
        ),
        ("ZRANGE u 0 -1 WITHSCORES", "*2 *2 $1 d ,1 *2 $1 c ,7"),
        ("ZPOPMIN u", "*2 $1 d ,1"),
    ]);
}

#[test]
fn lists_sets_and_sort() {
    transcript(&[
        ("RPUSH l 3 1 2 1", ":4"),
        ("LSET l 0 5", "+OK"),
        ("LINSERT l AFTER 2 9", ":5"),
        ("LPOS l 1 RANK -1", ":4"),
        ("LPOS l 1 COUNT 0", "*2 :1 :4"),
        ("LREM l -1 1", ":1"),
        ("LRANGE l 0 -1", "*4 $1 5 $1 1 $1 2 $1 9"),
        ("LRANGE l 0 -9", "*0"),
        ("SORT l DESC LIMIT 0 2", "*2 $1 9 $1 5"),
        ("MSET w1 3 w2 2 w5 1 w9 0", "+OK"),
        ("SORT l BY w* GET # GET w*", "*8 $1 9 $1 0 $1 5 $1 1 $1 2 $1 2 $1 1 $1 3"),
        ("SORT l STORE s", ":4"),
        ("LMOVE s t LEFT RIGHT", "$1 1"),
        ("LTRIM l 1 1", "+OK"),
        ("LMPOP 2 none l RIGHT COUNT 3", "*2 $1 l *1 $1 1"),
        ("EXISTS l", ":0"),
        ("MULTI", "+OK"),
        ("BLPOP l 0", "+QUEUED"),
        ("EXEC", "*1 *-1"),
        ("BLPOP l -1", "-ERR timeout is negative"),
        ("DEL s", ":1"),
        ("SADD s a b c", ":3"),
        ("SADD o b c d", ":3"),
        ("SINTER s o", "*2 $1 b $1 c"),
        ("SDIFFSTORE d s o", ":1"),
        ("SUNION s o s s", "*4 $1 a $1 b $1 c $1 d"),
        ("SINTER s s", "*3 $1 a $1 b $1 c"),
        ("SDIFF s s o", "*0"),
        ("SMOVE o d d", ":1"),
        ("SMEMBERS d", "*2 $1 a $1 d"),
        ("SINTERCARD 2 s o LIMIT 1", ":1"),
        ("SORT s BY nosort DESC STORE t", ":3"),
        ("LRANGE t 0 -1", "*3 $1 c $1 b $1 a"),
        ("OBJECT ENCODING t", "$8 listpack"),
        ("SPOP d 0", "*0"),
        ("SREM d a", ":1"),
        ("SPOP d 5", "*1 $1 d"),
        ("EXISTS d", ":0"),
        ("SUNIONSTORE s none", ":0"),
        ("EXISTS s", ":0"),
        ("COMMAND GETKEYS SORT a BY x STORE b", "*2 $1 a $1 b"),
        ("COMMAND GETKEYS ZUNIONSTORE d 2 a b", "*3 $1 d $1 a $1 b"),
        ("COMMAND GETKEYS BLMPOP 0 2 a b LEFT", "*2 $1 a $1 b"),
    ]);
}

/// SORT takes more texts for numbers than ZADD does.
#[test]
fn sort_reads_numbers_as_redis_does() {
    transcript(&[
        ("RPUSH l 2 \"\" \" 1\" -1 0x3 \"4\\x00x\"", ":6"),
        ("SORT l", "*6 $2 -1 $0  $2  1 $1 2 $3 0x3 $3 4\0x"),
        ("SET w1 \"\"", "+OK"),
        ("MSET w2 -5 w3 \" 1\"", "+OK"),
        ("RPUSH k 3 1 2", ":3"),
        ("SORT k BY w*", "*3 $1 2 $1 1 $1 3"),
        ("RPUSH l \" \"", ":7"),
        ("SORT l", "-ERR One or more scores can't be converted into double"),
        ("LSET l -1 1x", "+OK"),
        ("SORT l", "-ERR One or more scores can't be converted into double"),
        ("LSET l -1 1e999", "+OK"),
        ("SORT l", "-ERR One or more scores can't be converted into double"),
        ("LSET l -1 nan", "+OK"),
        ("SORT l", "-ERR One or more scores can't be converted into double"),
    ]);
}

#[test]
fn bits() {
    transcript(&[
        ("SET b \"\\xff\\xf0\\x00\"", "+OK"),
        ("BITCOUNT b", ":12"),
        ("BITCOUNT b 4 11 BIT", ":8"),
        ("BITPOS b 0", ":12"),
        ("BITPOS b 1 2", ":-1"),
        ("BITPOS none 0", ":0"),
        ("BITOP NOT n b", ":3"),
        ("BITCOUNT n", ":12"),
        ("BITOP XOR x b n b", ":3"),
        ("BITCOUNT x", ":12"),
        ("BITOP XOR x b b", ":3"),
        ("BITCOUNT x", ":0"),
        ("BITOP AND x b b n", ":3"),
        ("BITCOUNT x", ":0"),
        ("BITOP NOT n b b", "-ERR BITOP NOT must be called with a single source key."),
        ("SET s \"\\xff\\xff\"", "+OK"),
        ("BITOP AND x b s", ":3"),
        ("BITCOUNT x", ":12"),
        ("BITOP AND x s b none", ":3"),
        ("BITCOUNT x", ":0"),
        ("BITOP OR x none s b", ":3"),
        ("BITCOUNT x", ":16"),
        ("BITOP XOR x s b none", ":3"),
        ("BITCOUNT x", ":4"),
        ("BITFIELD f SET u8 #1 255 INCRBY u8 #1 1 OVERFLOW SAT INCRBY i5 0 99", "*3 :0 :0 :15"),
        ("BITFIELD f OVERFLOW FAIL INCRBY i5 0 1 GET i5 0", "*2 $-1 :15"),
        ("BITFIELD_RO f SET u8 0 1", "-ERR BITFIELD_RO only supports the GET subcommand"),
    ]);
}

/// More arguments than are compared in sequence: the same replies.
#[test]
fn many_arguments_are_as_few() {
    let mut house = House::new(false);
    let mut client = house.client();
    let words = |text: &str| (0..40).map(|n| text.replace('#', &n.to_string())).collect::<String>();
    let mut said = |line: String| house.say(&mut client, format!("{line}\r\n").as_bytes());
    assert_eq!(said(format!("HSET h{}{}", words(" f# #"), words(" f# x#"))), ":40 ");
    let all: Vec<String> =
        (0..40).map(|n| format!("${} x{n} ", if n < 10 { 2 } else { 3 })).collect();
    assert_eq!(said(format!("HMGET h{} no", words(" f#"))), format!("*41 {}$-1 ", all.concat()));
    assert_eq!(said(format!("HDEL h no{} f1", words(" f#"))), ":40 ");
    assert_eq!(said(format!("ZADD z 5 m39 1 one{}", words(" # m#"))), ":41 ");
    assert_eq!(said("ZRANGE z 0 2".into()), "*3 $2 m0 $2 m1 $3 one ");
    assert_eq!(said(format!("ZADD z CH{}", words(" 7 m#"))), ":39 ");
    assert_eq!(said("ZRANGE z -2 -1 WITHSCORES".into()), "*4 $2 m8 $1 7 $2 m9 $1 7 ");
    let scores = format!("*41 {}$-1 ", "$1 7 ".repeat(40));
    assert_eq!(said(format!("ZMSCORE z{} no", words(" m#"))), scores);
    assert_eq!(said(format!("ZREM z{} m1 no", words(" m#"))), ":40 ");
    assert_eq!(said(format!("SADD s{}", words(" m#"))), ":40 ");
    let there = format!("*41 {}:0 ", ":1 ".repeat(40));
    assert_eq!(said(format!("SMISMEMBER s{} no", words(" m#"))), there);
}

/// Words with a meaning for some command.
const WORDS: &str = "\
    0 1 -1 2 3 7 9223372036854775807 -9223372036854775808 nan inf -inf 1e400 (1 [a (a - + a \
    b s l t h z * LIMIT COUNT WITHSCORES WITHVALUES BYSCORE BYLEX REV WEIGHTS STORE \
    AGGREGATE MIN MAX LEFT RIGHT BEFORE NX XX GT CH INCR GET SET INCRBY u8 i64 u63 #1 \
    OVERFLOW SAT BIT BY nosort RANK MAXLEN MATCH DESC ALPHA AND NOT EX REPLACE IDX";

/// The length of the first reply, in bytes; `None` if there is no reply, or an incomplete reply.
fn reply_length(text: &[u8]) -> Option<usize> {
    let end = text.windows(2).position(|two| two == b"\r\n")?;
    let line = std::str::from_utf8(&text[1..end]).ok()?;
    let (mut length, number) = (end + 2, line.parse::<i64>());
    match text[0] {
        b'+' | b'-' => {}
        b':' => drop(number.ok()?),
        b'$' if number == Ok(-1) => {}
        b'$' => {
            length += usize::try_from(number.ok()?).ok()? + 2;
            return text.get(..length).filter(|all| all.ends_with(b"\r\n")).map(<[u8]>::len);
        }
        b'*' if number == Ok(-1) => {}
        b'*' => {
            for _ in 0..usize::try_from(number.ok()?).ok()? {
                length += reply_length(&text[length..])?;
            }
        }
        _ => return None,
    }
    Some(length)
}

/// Whatever the arguments are, a command has one reply, an error at worst, and the next command
/// runs. A waiting command waits no longer than allowed.
#[test]
fn any_arguments_are_answered() {
    let words_known: Vec<&str> = WORDS.split(' ').chain([""]).collect();
    let mut house = House::new(false);
    let (mut client, mut other) = (house.client(), house.client());
    let mut rng = fastrand::Rng::with_seed(4);
    let data: Vec<&Command> =
        catalogue::all().iter().filter(|command| command.phase == Phase::Data).collect();
    for _ in 0..60 {
        let mut input = Vec::new();
        for _ in 0..100 {
            let command = data[rng.usize(..data.len())];
            let least = command.arity.unsigned_abs() as usize;
            let words = least + if command.arity < 0 { rng.usize(..6) } else { 0 };
            input.extend(
                format!("*{words}\r\n${}\r\n{}\r\n", command.name.len(), command.name).bytes(),
            );
            for _ in 1..words {
                let word = words_known[rng.usize(..words_known.len())];
                input.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
            }
        }
        let mut all = house.replies(&mut client, &input);
        while client.is_blocked() {
            assert_eq!(house.say(&mut other, b"CLIENT UNBLOCK 1\r\n"), ":1 ");
            all.extend(house.replies(&mut client, b""));
        }
        let mut at = 0;
        for number in 0..100 {
            let length = reply_length(&all[at..]);
            let rest = String::from_utf8_lossy(&all[at..]);
            at += length.unwrap_or_else(|| panic!("reply {number} is broken: {rest}"));
        }
        assert_eq!(at, all.len(), "more replies than commands");
        assert!(client.is_idle() && !client.is_closing());
        assert_eq!(house.say(&mut client, b"PING\r\n"), "+PONG ");
    }
}
