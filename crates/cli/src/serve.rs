//! `hyades serve`: the server that speaks Redis's protocol; `hyades ping` asks it for a sign of
//! life.

use crate::failure::Failure;
use clap::Args;
use hyades_server::{Server, ServerError, Settings};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Options of `hyades serve`.
#[derive(Args, Clone, Debug)]
pub struct ServeOptions {
    /// A file in the syntax of redis.conf, then settings: --port 6379 --dir DIR ..
    #[arg(value_name = "FILE | --NAME VALUE", trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Options of `hyades ping`.
#[derive(Args, Clone, Debug)]
pub struct PingOptions {
    /// The server's host
    #[arg(long, default_value = "127.0.0.1")]
    host: String,
    /// The server's port
    #[arg(short, long, default_value_t = 6379)]
    port: u16,
}

impl From<ServerError> for Failure {
    fn from(error: ServerError) -> Self {
        match error {
            // An address that is taken is a wrong setting.
            ServerError::Start(text) => Failure::Usage(text),
            ServerError::Failed(text) => Failure::Failed(text),
        }
    }
}

/// Runs `hyades serve` until it is stopped.
///
/// # Errors
/// A setting is not possible; the server cannot start; its database cannot be opened, or its log
/// fails.
pub fn serve(options: &ServeOptions) -> Result<bool, Failure> {
    let settings = Settings::from_arguments(&options.arguments);
    let settings = settings.map_err(|error| Failure::Usage(error.to_string()))?;
    let server = Server::start(settings)?;
    server.stop_on_signals().map_err(Failure::doing("cannot wait for signals"))?;
    let addresses = match server.tls_address() {
        None => server.address().to_string(),
        Some(tls) if tls == server.address() => format!("{tls} (TLS)"),
        Some(tls) => format!("{} and {tls} (TLS)", server.address()),
    };
    eprintln!("listening on {addresses}, opening the database");
    if let Some(address) = server.metrics_address() {
        eprintln!("status at http://{address}/, metrics at http://{address}/metrics");
    }
    if let Some(opened) = server.wait_until_open()? {
        eprintln!("{opened}; every OK is on disk before it is sent");
        println!("ready on {addresses}");
    }
    server.wait()?;
    eprintln!("stopped in good order");
    Ok(true)
}

/// Runs `hyades ping`: whether a server answers. One that is still recovering does.
///
/// # Errors
/// None answers, or it is something else.
pub fn ping(options: &PingOptions) -> Result<bool, Failure> {
    let (host, port) = (&options.host, options.port);
    let ask = || -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect((&host[..], port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 7];
        stream.read_exact(&mut answer)?;
        Ok(answer.to_vec())
    };
    let answer = ask().map_err(Failure::doing(format!("no server answers at {host}:{port}")))?;
    if answer != b"+PONG\r\n" {
        return Err(Failure::Failed(format!("{host}:{port} does not answer PONG")));
    }
    println!("PONG");
    Ok(true)
}
