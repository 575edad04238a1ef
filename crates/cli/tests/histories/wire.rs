//! A client's side of the protocol.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A reply. An error has no place in a history.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reply {
    Null,
    Integer(i64),
    Text(String),
    Array(Vec<Reply>),
}

/// A connection.
pub struct Caller(BufReader<TcpStream>);

impl Caller {
    pub fn connect(address: &str) -> std::io::Result<Caller> {
        Caller::patient(address, Duration::from_secs(30))
    }

    /// As [`Caller::connect`]: a server that does not answer for so long is gone.
    pub fn patient(address: &str, patience: Duration) -> std::io::Result<Caller> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        Ok(Caller(BufReader::new(stream)))
    }

    /// Sends commands at once, and returns the last reply. An error if the server is gone.
    pub fn ask(&mut self, commands: &[String]) -> std::io::Result<Reply> {
        let answer = self.attempt(commands)?;
        Ok(answer.unwrap_or_else(|line| panic!("an error was replied: {line}")))
    }

    /// As [`Caller::ask`]; the inner error is that of the first command which was replied an error.
    pub fn attempt(&mut self, commands: &[String]) -> std::io::Result<Result<Reply, String>> {
        self.0.get_mut().write_all((commands.join("\r\n") + "\r\n").as_bytes())?;
        let mut answer = Ok(Reply::Null);
        for _ in commands {
            let next = self.reply()?;
            answer = answer.and(next);
        }
        Ok(answer)
    }

    /// A reply, or the line of an error.
    fn reply(&mut self) -> std::io::Result<Result<Reply, String>> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 || !line.ends_with('\n') {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let (kind, rest) = line.split_at(1);
        let number = || rest.parse::<i64>().expect("it is a number");
        Ok(Ok(match kind {
            "-" => return Ok(Err(rest.to_string())),
            "+" => Reply::Text(rest.to_string()),
            ":" => Reply::Integer(number()),
            "$" | "*" if number() < 0 => Reply::Null,
            "$" => {
                let mut bytes = vec![0; number() as usize + 2];
                self.0.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Reply::Text(String::from_utf8(bytes).expect("it is text"))
            }
            "*" => {
                let all = (0..number()).map(|_| self.reply());
                match all.collect::<Result<Result<Vec<_>, _>, _>>()? {
                    Ok(all) => Reply::Array(all),
                    Err(line) => return Ok(Err(line)),
                }
            }
            _ => panic!("this is no reply: {line}"),
        }))
    }
}
