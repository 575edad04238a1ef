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
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        Ok(Caller(BufReader::new(stream)))
    }

    /// Sends commands at once, and returns the last reply. An error if the server is gone.
    pub fn ask(&mut self, commands: &[String]) -> std::io::Result<Reply> {
        self.0.get_mut().write_all((commands.join("\r\n") + "\r\n").as_bytes())?;
        let mut last = Reply::Null;
        for _ in commands {
            last = self.reply()?;
        }
        Ok(last)
    }

    fn reply(&mut self) -> std::io::Result<Reply> {
        let mut line = String::new();
        if self.0.read_line(&mut line)? == 0 || !line.ends_with('\n') {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        let line = line.trim_end();
        let (kind, rest) = line.split_at(1);
        let number = || rest.parse::<i64>().expect("it is a number");
        Ok(match kind {
            "+" => Reply::Text(rest.to_string()),
            ":" => Reply::Integer(number()),
            "$" | "*" if number() < 0 => Reply::Null,
            "$" => {
                let mut bytes = vec![0; number() as usize + 2];
                self.0.read_exact(&mut bytes)?;
                bytes.truncate(bytes.len() - 2);
                Reply::Text(String::from_utf8(bytes).expect("it is text"))
            }
            "*" => Reply::Array((0..number()).map(|_| self.reply()).collect::<Result<_, _>>()?),
            _ => panic!("an error was replied: {line}"),
        })
    }
}
