//! How the members of a group come to exchange data: they find one another by the control channel.
//!
//! Depends on the control channel, and on mlx-ffi's groups. Invariant: all members open a group together, for an operation that
//! all of them have announced.

use super::client::Client;
use super::wire::{number, text};
use mlx_ffi::distributed as mlx;
use mlx_ffi::nccl;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::Instant;

/// Who opens a group.
pub(super) struct Opening<'a> {
    pub(super) client: &'a Client,
    pub(super) name: &'a str,
    pub(super) members: &'a [usize],
    pub(super) rank: usize,
    /// The address to be reached at.
    pub(super) host: IpAddr,
    pub(super) until: Option<Instant>,
}

impl Opening<'_> {
    /// Tells the others a text, and gives the texts of all members in their order.
    fn exchange(&self, own: &str) -> Result<Vec<String>, String> {
        let (size, rank) = (number(self.members.len() as u64), number(self.rank as u64));
        let id = self.client.ask("open", &[self.name.as_bytes(), &size, &rank, own.as_bytes()]);
        let granted = self.client.answer(id, Some((self.name, self.members)), self.until)?;
        Ok(granted.iter().map(|one| text(Some(one)).to_owned()).collect())
    }

    fn opened(&self, group: mlx_ffi::Result<mlx::Group>, what: &str) -> Result<Arc<mlx::Group>, String> {
        self.client.ask("opened", &[self.name.as_bytes()]);
        group.map(Arc::new).map_err(|e| format!("{what} cannot be opened: {e}"))
    }

    /// A ring over TCP. `found` is told its addresses before it is waited for, so that it can be ended.
    pub(super) fn ring(&self, found: impl FnOnce(&[SocketAddr])) -> Result<Arc<mlx::Group>, String> {
        // The system finds a free port, which MLX then listens at.
        let free = TcpListener::bind((self.host, 0)).and_then(|l| l.local_addr());
        let own = free.map_err(|e| format!("no port can be had at {}: {e}", self.host))?;
        let addresses: Vec<_> = self.exchange(&own.to_string())?.iter().filter_map(|a| a.parse().ok()).collect();
        found(&addresses);
        self.opened(mlx::Group::ring(&addresses, self.rank), "the ring")
    }

    /// A group of NCCL's, which `ended` ends.
    pub(super) fn nccl(&self, ended: &Arc<AtomicBool>) -> Result<Arc<mlx::Group>, String> {
        // On one machine nobody else is to reach it.
        let interface = self.host.is_loopback().then_some("lo");
        let own = if self.rank == 0 { nccl::Id::new(interface) } else { Err(mlx_ffi::Error::Exiting) };
        let told = own.as_ref().map(nccl::Id::to_text).unwrap_or_default();
        let all = self.exchange(&told)?;
        let id = all.first().and_then(|first| nccl::Id::from_text(first));
        let group = match (id, own) {
            (Some(id), _) => mlx::Group::nccl(&id, self.members.len(), self.rank, ended),
            (None, Err(why)) if self.rank == 0 => Err(why),
            (None, _) => Err(mlx_ffi::Error::Mlx("[nccl] the first member has no address for it".into())),
        };
        self.opened(group, "NCCL")
    }
}
