//! The samples of a rank.

use crate::error::{Error, Result};
use gpumem_core::network::Network;
use gpumem_core::run::device::Device;
use gpumem_core::run::net::Net;
use gpumem_data::{Batched, Loader};

/// Lets a loader return the samples of a network's rank.
pub(crate) fn shard<N: Network, D: Device, I: Batched, T: Batched>(
    net: &Net<N, D>,
    loader: &mut Loader<I, T>,
) -> Result<()> {
    let wanted = [net.rank(), net.ranks()];
    match loader.share() {
        share if share == wanted => {}
        [0, 1] => loader.set_shard(wanted[0], wanted[1]),
        // Processes that do not know of each other train on shards of their own.
        _ if wanted[1] == 1 => {}
        [own, of] => {
            let [rank, ranks] = wanted;
            return Err(Error::setting(format!(
                "the loader returns shard {own} of {of}, and the network is rank {rank} of {ranks}; leave `.shard({own}, {of})` out, since the \
                 trainer sets it"
            )));
        }
    }
    Ok(())
}
