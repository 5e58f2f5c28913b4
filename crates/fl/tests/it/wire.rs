//! Binary messages.

use std::fmt::Debug;
use std::sync::Arc;

use fedelity_fl::wire::{Wire, WireError};
use fedelity_fl::{Broadcast, ClientMemory, Finished, Payload, ServerState, TermMeans, Terms, Upload};
use fedelity_nn::Params;
use proptest::prelude::*;

fn payload() -> Payload {
    Payload::new().with("b", vec![1.5, -0.0, f32::MIN_POSITIVE / 2.0]).with("", vec![]).with("a\u{e9}", vec![f32::MAX])
}

fn broadcast() -> Broadcast {
    Broadcast { round: 7, global: Arc::new(Params(vec![0.25, -3.0])), payload: payload() }
}

fn upload() -> Upload {
    let mut terms = TermMeans::default();
    terms.add(&Terms::of("ce", 1.25).with("kd", 0.1), 3);
    terms.add(&Terms::of("kd", 0.3), 2);
    Upload { round: 7, client: 3, examples: 12, steps: 5, terms, params: Params(vec![1.0, 2.0]), extra: payload() }
}

fn memory() -> ClientMemory {
    ClientMemory { client: 9, memory: payload() }
}

fn state() -> ServerState {
    ServerState { round: 4, global: Arc::new(Params(vec![0.5; 3])), state: payload() }
}

/// Round-trips exactly, and neither truncated nor extended bytes are accepted.
fn round_trip<T: Wire + PartialEq + Debug>(value: &T) {
    let bytes = value.to_bytes();
    assert_eq!(T::from_bytes(&bytes).as_ref(), Ok(value));
    assert_eq!(T::from_bytes(&bytes).unwrap().to_bytes(), bytes);
    for end in 0..bytes.len() {
        assert!(matches!(T::from_bytes(&bytes[..end]), Err(WireError::Short { .. })), "{end} of {}", bytes.len());
    }
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(T::from_bytes(&longer), Err(WireError::Trailing { bytes: 1 }));
}

#[test]
fn every_message_comes_back() {
    round_trip(&payload());
    round_trip(&broadcast());
    round_trip(&upload());
    round_trip(&memory());
    round_trip(&state());
    round_trip(&Finished { upload: upload(), memory: payload(), teacher_passes: 7 });
    let means: Vec<(String, f64)> = Upload::from_bytes(&upload().to_bytes())
        .unwrap()
        .terms
        .iter()
        .map(|(name, mean)| (name.into(), mean))
        .collect();
    assert_eq!(means[0], ("ce".to_string(), 0.75));
}

#[test]
fn nan_bits_come_back_too() {
    let odd = [0x7fc0_1234, 0xffa5_5a5a, 0x7f80_0000, 0xff80_0000, 0x8000_0000].map(f32::from_bits);
    let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    let memory = Payload::new().with("odd", odd.to_vec());
    let found = Payload::from_bytes(&memory.to_bytes()).unwrap();
    assert_eq!(bits(found.get("odd").unwrap()), bits(&odd));
    let global = Arc::new(Params(odd.to_vec()));
    let found = Broadcast::from_bytes(&Broadcast { global, ..broadcast() }.to_bytes()).unwrap();
    assert_eq!(bits(&found.global), bits(&odd));
}

#[test]
fn the_format_is_pinned() {
    // Changing the format requires a new version.
    let bytes = Payload::new().with("ab", vec![1.0]).to_bytes();
    let expected = [
        &b"FDLT"[..],
        &[1, 0, 1, 0],
        &[1, 0, 0, 0, 0, 0, 0, 0],
        &[2],
        b"ab",
        &[1],
        &[1, 0, 0, 0, 0, 0, 0, 0],
        &[0, 0, 0x80, 0x3f],
    ];
    assert_eq!(bytes, expected.concat());
}

#[test]
fn invalid_messages_are_named() {
    let whole = |value: u64| value.to_le_bytes().to_vec();
    let head = |kind: u8| [&b"FDLT"[..], &[1, 0, kind, 0]].concat();
    let array = |name: &[u8], tag: u8, len: u64| [&[name.len() as u8][..], name, &[tag], &whole(len)].concat();
    let read = |parts: &[Vec<u8>]| Payload::from_bytes(&parts.concat()).unwrap_err();
    assert_eq!(Payload::from_bytes(b"PK\x03\x04, a long enough file"), Err(WireError::Magic));
    assert_eq!(Payload::from_bytes(b"FDLT\x02\0\x01\0"), Err(WireError::Version { found: 2 }));
    assert_eq!(read(&[head(3)]), WireError::Kind { what: "arrays", expected: 1, found: 3 });
    for count in [2, 1 << 20] {
        let short = WireError::Short { what: "arrays", needed: 10 * count, left: 0 };
        assert_eq!(read(&[head(1), whole(count)]), short);
    }
    let many = WireError::TooMany { what: "arrays", found: u64::MAX, most: 1 << 24 };
    assert_eq!(read(&[head(1), whole(u64::MAX)]), many);
    for len in [1, u64::MAX, u64::MAX / 4 + 2] {
        let short = WireError::Short { what: "an array", needed: len.saturating_mul(4), left: 0 };
        assert_eq!(read(&[head(1), whole(1), array(b"a", 1, len)]), short);
    }
    let two = |first: &[u8], second: &[u8]| read(&[head(1), whole(2), array(first, 1, 0), array(second, 1, 0)]);
    assert_eq!(two(b"b", b"a"), WireError::Order { name: "a".into() });
    assert_eq!(two(b"a", b"a"), WireError::Order { name: "a".into() });
    assert_eq!(two(b"a", b"\xff"), WireError::Name);
    assert_eq!(read(&[head(1), whole(1), array(b"a", 9, 0)]), WireError::Type { name: "a".into(), tag: 9 });
    // An upload with more terms than a loss can have.
    let bytes = [head(3), [7, 3, 12, 5, 9].map(whole).concat(), vec![0; 200]].concat();
    let many = WireError::TooMany { what: "terms", found: 9, most: 8 };
    assert_eq!(Upload::from_bytes(&bytes), Err(many));
}

fn arrays() -> impl Strategy<Value = Payload> {
    let numbers = prop::collection::vec(any::<u32>().prop_map(f32::from_bits), 0..20);
    prop::collection::btree_map("[a-z0-9/-]{0,12}", numbers, 0..6).prop_map(|arrays| {
        arrays.into_iter().fold(Payload::new(), |payload, (name, values)| payload.with(name, values))
    })
}

/// Reads bytes as one kind of message and writes it again.
type Again = fn(&[u8]) -> Option<Vec<u8>>;

fn readers() -> [Again; 6] {
    fn read<T: Wire>(bytes: &[u8]) -> Option<Vec<u8>> {
        T::from_bytes(bytes).ok().map(|read| read.to_bytes())
    }
    [read::<Payload>, read::<Broadcast>, read::<Upload>, read::<ClientMemory>, read::<ServerState>, read::<Finished>]
}

proptest! {
    #[test]
    fn any_arrays_come_back(payload in arrays()) {
        let bytes = payload.to_bytes();
        prop_assert_eq!(Payload::from_bytes(&bytes).unwrap().to_bytes(), bytes);
    }

    #[test]
    fn any_message_comes_back(payload in arrays(), weights in prop::collection::vec(any::<u32>(), 0..40)) {
        let params = Params(weights.into_iter().map(f32::from_bits).collect());
        let global = Arc::new(params.clone());
        let messages = [
            payload.to_bytes(),
            Broadcast { payload: payload.clone(), global: global.clone(), ..broadcast() }.to_bytes(),
            Upload { extra: payload.clone(), params: params.clone(), ..upload() }.to_bytes(),
            ClientMemory { client: 1, memory: payload.clone() }.to_bytes(),
            ServerState { state: payload.clone(), global, ..state() }.to_bytes(),
            Finished { upload: Upload { params, ..upload() }, memory: payload, teacher_passes: 3 }.to_bytes(),
        ];
        for (message, read) in messages.into_iter().zip(readers()) {
            prop_assert_eq!(read(&message), Some(message));
        }
    }

    #[test]
    fn reading_never_panics(
        payload in arrays(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        end in any::<prop::sample::Index>(),
    ) {
        let messages = [
            payload.to_bytes(),
            Broadcast { payload: payload.clone(), ..broadcast() }.to_bytes(),
            Upload { extra: payload.clone(), ..upload() }.to_bytes(),
            ClientMemory { client: 1, memory: payload.clone() }.to_bytes(),
            ServerState { state: payload.clone(), ..state() }.to_bytes(),
            Finished { upload: upload(), memory: payload, teacher_passes: 3 }.to_bytes(),
        ];
        for (message, read) in messages.into_iter().zip(readers()) {
            let mut changed = message.clone();
            for (at, byte) in &changes {
                let at = at.index(changed.len());
                changed[at] = *byte;
            }
            // Whatever is accepted is written back identically.
            if let Some(again) = read(&changed) {
                prop_assert_eq!(again, changed.clone());
            }
            prop_assert_eq!(read(&message[..end.index(message.len())]), None);
        }
    }

    #[test]
    fn noise_is_not_a_message(noise in prop::collection::vec(any::<u8>(), 0..200), kind in 0u8..7) {
        let bytes = [&b"FDLT"[..], &[1, 0, kind, 0], &noise].concat();
        for read in readers() {
            if let Some(again) = read(&bytes) {
                prop_assert_eq!(again, bytes.clone());
            }
        }
    }
}
