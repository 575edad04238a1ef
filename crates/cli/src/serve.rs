//! `hyades serve`: the server that speaks Redis's protocol; `hyades ping` asks it for a sign of
//! life.

use clap::Args;
use hyades_cli::failure::Failure;
use hyades_cli::memory;
use hyades_cli::progress::{self, Bar};
use hyades_server::{PingTls, Server, ServerError, Settings};
use std::fmt::Display;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often the progress of recovery is printed where no bar is drawn.
const PRINTED_EVERY: Duration = Duration::from_secs(10);

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
    /// The server's port [default: that of HYADES_PORT, or else 6379]
    #[arg(short, long)]
    port: Option<u16>,
    /// The file that the server listens at (unixsocket), instead of a host and a port
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["host", "port", "tls"])]
    socket: Option<PathBuf>,
    /// Ask over an encrypted connection
    #[arg(long)]
    tls: bool,
    /// Certificates of the authorities that sign the server's
    #[arg(long, value_name = "FILE", requires = "tls")]
    cacert: Option<PathBuf>,
    /// A certificate to show to the server
    #[arg(long, value_name = "FILE", requires_all = ["tls", "key"])]
    cert: Option<PathBuf>,
    /// The private key of that certificate
    #[arg(long, value_name = "FILE", requires_all = ["tls", "cert"])]
    key: Option<PathBuf>,
    /// Take any certificate of the server
    #[arg(long, requires = "tls")]
    insecure: bool,
}

fn failure_of(error: ServerError) -> Failure {
    match error {
        // An address in use is a wrong setting.
        ServerError::Start(text) => Failure::Usage(text),
        ServerError::Failed(text) => Failure::Failed(text),
    }
}

/// Runs `hyades serve` until it is stopped.
///
/// # Errors
/// A setting is not possible; the server cannot start; its database cannot be opened, or its log
/// fails.
pub fn serve(options: &ServeOptions) -> Result<bool, Failure> {
    #[cfg(feature = "replication")]
    let (member, arguments) = crate::member::split(&options.arguments)?;
    #[cfg(not(feature = "replication"))]
    let arguments = options.arguments.clone();
    let settings = Settings::from_arguments(&arguments);
    let settings = settings.map_err(|error| Failure::Usage(error.to_string()))?;
    settings.count_memory(memory::allocated);
    hyades_server::survive_file_limit().map_err(Failure::doing("cannot take SIGXFSZ"))?;
    #[cfg(not(feature = "replication"))]
    let server = Server::start(settings).map_err(failure_of)?;
    #[cfg(feature = "replication")]
    let server = match member {
        Some(member) => Server::start_as_member(settings, member.source()),
        None => Server::start(settings),
    }
    .map_err(failure_of)?;
    server.stop_on_signals().map_err(Failure::doing("cannot wait for signals"))?;
    let tls = server.tls_address();
    let plain = server.address().filter(|address| Some(*address) != tls);
    let all = [
        plain.map(|address| address.to_string()),
        tls.map(|address| format!("{address} (TLS)")),
        server.unix_socket().map(|path| path.display().to_string()),
    ];
    let addresses = all.into_iter().flatten().collect::<Vec<_>>().join(" and ");
    tell(format_args!("listening on {addresses}, opening the database"));
    server.notices().iter().for_each(tell);
    if let Some(address) = server.metrics_address() {
        tell(format_args!("status at http://{address}/, metrics at http://{address}/metrics"));
    }
    let bar = Bar::new("recovering", 1);
    let (draws, mut printed) = (std::io::stderr().is_terminal(), Instant::now());
    let opened = server.wait_until_open_telling(|progress| {
        bar.show(progress);
        if !draws && printed.elapsed() >= PRINTED_EVERY {
            printed = Instant::now();
            let percent = 100.0 * progress.share();
            tell(format_args!("recovering, {percent:.0} %: {}", progress::in_words(progress)));
        }
    });
    bar.clear();
    if let Some(opened) = opened.map_err(failure_of)? {
        tell(format_args!("{opened}; every OK is on disk before it is sent"));
        server.left_alone().iter().for_each(tell);
        let _ = writeln!(std::io::stdout(), "ready on {addresses}");
    }
    let handle = server.handle();
    server.wait().map_err(failure_of)?;
    match handle.cut_off() {
        0 => tell("stopped in good order"),
        clients => tell(format_args!(
            "stopped after ten seconds; {clients} clients were disconnected that had not read \
             all of their replies. What was answered is on disk"
        )),
    }
    Ok(true)
}

/// Writes to standard error. A server goes on if the reader has ended.
fn tell(text: impl Display) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Runs `hyades ping`: checks whether a server answers. A server in recovery does.
///
/// # Errors
/// No server answers, the answer is not a server's, or its certificate is not to be trusted.
pub fn ping(options: &PingOptions) -> Result<bool, Failure> {
    let encryption = options.tls.then(|| PingTls {
        authorities: options.cacert.clone(),
        certificate: options.cert.clone().zip(options.key.clone()),
        takes_any: options.insecure,
    });
    let answered = match &options.socket {
        Some(file) => hyades_server::ping_file(file),
        None => {
            let port = options.port.map_or_else(hyades_server::environment_port, Ok);
            let port = port.map_err(|error| Failure::Usage(error.to_string()))?;
            hyades_server::ping(&options.host, port, encryption.as_ref())
        }
    };
    answered.map_err(Failure::Failed)?;
    println!("PONG");
    Ok(true)
}
