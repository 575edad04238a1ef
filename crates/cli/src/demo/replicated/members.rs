//! The members of a replicated database as child processes of this program.

use crate::demo::server::client::{Client, Reply};
use hyades_cli::failure::Failure;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The name of the database.
pub const NAME: &str = "demo";

/// Where clients reach the members.
#[derive(Clone, Copy, Debug)]
pub struct Addresses(pub [SocketAddr; 3]);

impl Addresses {
    /// The place of the primary, as the first member that answers tells.
    pub fn primary(&self) -> Option<usize> {
        self.0.iter().find_map(|address| {
            let mut client = Client::try_connect(*address).ok()?;
            client.add(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME]);
            client.flush().ok()?;
            let Reply::Array(found) = client.reply().ok()? else { return None };
            let [_, Reply::Text(port)] = &found[..] else { return None };
            self.0.iter().position(|address| address.port().to_string() == *port)
        })
    }
}

/// Three members, which are killed when the value is dropped.
pub struct Members {
    dir: PathBuf,
    servers: String,
    streams: u32,
    /// Where clients reach the members.
    pub addresses: Addresses,
    pages: [u16; 3],
    children: [Option<Child>; 3],
}

impl Members {
    /// Prepares three members with log streams over NATS servers, in a directory that is there,
    /// with six ports.
    pub fn new(dir: &Path, servers: String, streams: u32, ports: &[u16]) -> Members {
        let at = |at: usize| SocketAddr::from((Ipv4Addr::LOCALHOST, ports[at]));
        Members {
            dir: dir.to_owned(),
            servers,
            streams,
            addresses: Addresses(std::array::from_fn(at)),
            pages: std::array::from_fn(|at| ports[3 + at]),
            children: Default::default(),
        }
    }

    /// The status page of a member.
    pub fn page(&self, at: usize) -> String {
        format!("http://127.0.0.1:{}/", self.pages[at])
    }

    /// Starts a member.
    ///
    /// # Errors
    /// The process could not be started.
    pub fn start(&mut self, at: usize) -> Result<(), Failure> {
        let (node, address) = (format!("n{}", at + 1), self.addresses.0[at]);
        let log = File::options().create(true).append(true).open(self.log(at));
        let started = log.and_then(|log| {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(["serve", "--bind", "127.0.0.1", "--streams", &self.streams.to_string()]);
            command.arg("--dir").arg(self.dir.join(&node));
            command.args(["--port", &address.port().to_string()]);
            command.args(["--metrics-port", &self.pages[at].to_string()]);
            command.args(["--replicated", &format!("nats://{}/{NAME}", self.servers)]);
            command.args(["--node", &node, "--announce", &address.to_string()]);
            // Ctrl-C at the terminal is for the demo alone, which ends its children.
            command.process_group(0).stdin(Stdio::null());
            command.stdout(log.try_clone()?).stderr(log).spawn()
        });
        self.children[at] = Some(started.map_err(Failure::doing("cannot start a member"))?);
        Ok(())
    }

    /// Kills a member.
    pub fn kill(&mut self, at: usize) {
        if let Some(mut child) = self.children[at].take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// A member that was started and has ended by itself, with the end of its messages.
    pub fn ended(&mut self) -> Option<String> {
        let has_ended = |child: &mut Child| child.try_wait().is_ok_and(|status| status.is_some());
        let mut children = self.children.iter_mut();
        let at = children.position(|child| child.as_mut().is_some_and(has_ended))?;
        let said = std::fs::read_to_string(self.log(at)).unwrap_or_default();
        let last = said.lines().last().unwrap_or_default();
        Some(format!("member n{} has ended by itself: {last}", at + 1))
    }

    fn log(&self, at: usize) -> PathBuf {
        self.dir.join(format!("n{}.log", at + 1))
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        (0..3).for_each(|at| self.kill(at));
    }
}
