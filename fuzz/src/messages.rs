//! Messages between server and clients.

use fedelity_fl::wire::Wire;
use fedelity_fl::{Broadcast, ClientMemory, Finished, Payload, ServerState, Upload};

use crate::Read;

/// A message of any kind. Whatever is accepted is written back identically.
pub(crate) fn messages() -> Read {
    fn again<T: Wire>(bytes: &[u8]) -> Result<Vec<u8>, String> {
        T::from_bytes(bytes).map(|read| read.to_bytes()).map_err(|error| error.to_string())
    }
    let kinds = [
        again::<Payload>,
        again::<Broadcast>,
        again::<Upload>,
        again::<ClientMemory>,
        again::<ServerState>,
        again::<Finished>,
    ];
    Box::new(move |bytes| {
        let mut refused = String::new();
        for kind in kinds {
            match kind(bytes) {
                Ok(again) => {
                    assert_eq!(again, bytes);
                    return Ok(());
                }
                Err(reason) => refused = reason,
            }
        }
        Err(refused)
    })
}
