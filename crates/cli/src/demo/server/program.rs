//! The servers killed by the demo, as processes.

use super::client::{Client, Reply};
use hyades_cli::failure::Failure;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server.
#[derive(Clone, Copy, Debug)]
pub enum Program {
    /// `hyades serve`.
    Hyades {
        /// Log streams.
        streams: u32,
    },
    /// `redis-server`, with a file of commands synced before each reply.
    Redis,
}

/// A start takes less than this time, or there is a fault.
const STARTS_WITHIN: Duration = Duration::from_secs(120);

impl Program {
    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Program::Hyades { .. } => "hyades",
            Program::Redis => "redis-server",
        }
    }

    /// The command of the start, in a line.
    pub fn what(self) -> String {
        match self {
            Program::Hyades { streams } => format!("hyades serve --streams {streams}"),
            Program::Redis => "redis-server --appendonly yes --appendfsync always".to_string(),
        }
    }

    /// Whether the program is installed.
    pub fn is_there(self) -> bool {
        let version = |program| {
            let mut command = Command::new(program);
            command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status()
        };
        match self {
            Program::Hyades { .. } => true,
            Program::Redis => version("redis-server").is_ok_and(|status| status.success()),
        }
    }

    /// Starts the server on a directory, and waits until the server replies to commands on data.
    ///
    /// # Errors
    /// The server could not be started, or ended by itself.
    pub fn start(self, dir: &Path) -> Result<Running, Failure> {
        std::fs::create_dir_all(dir).map_err(Failure::doing("cannot create a directory"))?;
        let doing = || Failure::doing(format!("cannot start {}", self.name()));
        // Both print their port in different ways: a port free now will be free then.
        let free =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
        let address = free.map_err(doing())?;
        let port = address.port().to_string();
        let mut command = match self {
            Program::Hyades { streams } => {
                let mut command = Command::new(std::env::current_exe().map_err(doing())?);
                command.args(["serve", "--streams", &streams.to_string()]);
                command
            }
            Program::Redis => {
                let mut command = Command::new("redis-server");
                command.args(["--appendonly", "yes", "--appendfsync", "always", "--save", ""]);
                command
            }
        };
        command.args(["--bind", "127.0.0.1", "--port", &port, "--dir"]).arg(dir);
        let began = Instant::now();
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(doing())?;
        let mut running = Running { child, address, ready_after: 0.0 };
        while !answers(address) {
            if running.has_ended() || began.elapsed() > STARTS_WITHIN {
                let text =
                    format!("{} does not start: run {} to see why", self.name(), self.what());
                return Err(Failure::Failed(text));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        running.ready_after = began.elapsed().as_secs_f64();
        Ok(running)
    }
}

fn answers(address: SocketAddr) -> bool {
    let Ok(mut client) = Client::try_connect(address) else { return false };
    client.add(&["EXISTS", "account:0"]);
    matches!(client.flush().and_then(|()| client.reply()), Ok(Reply::Text(_)))
}

/// A running server, killed when dropped.
pub struct Running {
    child: Child,
    /// The listening address.
    pub address: SocketAddr,
    /// Seconds from the start to the first answer about data.
    pub ready_after: f64,
}

impl Running {
    /// Whether the server has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Kills the server, by SIGKILL.
    ///
    /// # Errors
    /// Errors of the system.
    pub fn kill(&mut self) -> Result<(), Failure> {
        self.child.kill().map_err(Failure::doing("cannot kill the server"))?;
        self.child.wait().map_err(Failure::doing("cannot wait for the server"))?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The server may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
