//! Binary format of messages and stored state: versioned, little endian, and safe to read from untrusted sources.
//!
//! A message is `FDLT`, the version and the kind (two bytes each), then the fields of its type in order. Integers take
//! eight bytes. Arrays of numbers are a count and four bytes per number, whatever their bits; a payload is the number
//! of its arrays and, in strictly ascending order of names, each array's name, number type and numbers.
//!
//! A length is trusted only once its bytes have been seen, so no message makes its reader allocate more than a small
//! multiple of its size.

use std::sync::Arc;

use fedelity_nn::Params;

use crate::{Broadcast, ClientMemory, Finished, Payload, ServerState, TermMeans, Upload};

const MAGIC: [u8; 4] = *b"FDLT";
const VERSION: u16 = 1;
/// The only number type so far: f32.
const F32: u8 = 1;
/// The maximum number of arrays in a payload.
const ARRAYS: usize = 1 << 24;

/// Why bytes are not a valid message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    #[error("not a Fedelity message: it does not start with FDLT")]
    Magic,
    #[error("the message has version {found}; this program reads version {VERSION}")]
    Version { found: u16 },
    #[error("the message is of kind {found}, expected {expected} ({what})")]
    Kind { what: &'static str, expected: u16, found: u16 },
    #[error("the message ends too early: {needed} bytes expected for {what}, but {left} are left")]
    Short { what: &'static str, needed: u64, left: usize },
    #[error("{found} {what} are more than the {most} allowed")]
    TooMany { what: &'static str, found: u64, most: usize },
    #[error("a name is not valid UTF-8")]
    Name,
    #[error("the name '{name}' is not in ascending order")]
    Order { name: String },
    #[error("the term '{name}' occurs twice")]
    Twice { name: String },
    #[error("the array '{name}' has numbers of the unknown type {tag}")]
    Type { name: String, tag: u8 },
    #[error("{bytes} bytes follow the end of the message")]
    Trailing { bytes: usize },
}

/// A type that can be sent as a message.
pub trait Wire: Sized {
    /// The number of its kind. Numbers are never reused.
    const KIND: u16;
    /// Its name in error messages.
    const WHAT: &'static str;

    /// Appends the fields.
    fn write(&self, out: &mut Vec<u8>);

    /// Reads the fields.
    fn read(from: &mut Reader<'_>) -> Result<Self, WireError>;

    /// The whole message.
    ///
    /// # Panics
    ///
    /// If a name has more than 255 bytes.
    fn to_bytes(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(VERSION.to_le_bytes());
        out.extend(Self::KIND.to_le_bytes());
        self.write(&mut out);
        out
    }

    /// Reads a whole message.
    fn from_bytes(bytes: &[u8]) -> Result<Self, WireError> {
        let mut from = Reader { left: bytes };
        if from.array("the magic")? != MAGIC {
            return Err(WireError::Magic);
        }
        let version = u16::from_le_bytes(from.array("the version")?);
        if version != VERSION {
            return Err(WireError::Version { found: version });
        }
        let found = u16::from_le_bytes(from.array("the kind")?);
        if found != Self::KIND {
            return Err(WireError::Kind { what: Self::WHAT, expected: Self::KIND, found });
        }
        let read = Self::read(&mut from)?;
        match from.left.len() {
            0 => Ok(read),
            bytes => Err(WireError::Trailing { bytes }),
        }
    }
}

/// The unread rest of a message.
#[derive(Debug)]
pub struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    fn bytes(&mut self, what: &'static str, needed: u64) -> Result<&'a [u8], WireError> {
        let short = WireError::Short { what, needed, left: self.left.len() };
        let taken = usize::try_from(needed).ok().and_then(|needed| self.left.split_at_checked(needed));
        let (taken, left) = taken.ok_or(short)?;
        self.left = left;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], WireError> {
        let bytes = self.bytes(what, N as u64)?;
        Ok(bytes.try_into().expect("as many bytes as were asked for"))
    }

    fn number(&mut self, what: &'static str) -> Result<u64, WireError> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    fn whole(&mut self, what: &'static str) -> Result<usize, WireError> {
        let found = self.number(what)?;
        usize::try_from(found).map_err(|_| WireError::TooMany { what, found, most: usize::MAX })
    }

    fn float(&mut self, what: &'static str) -> Result<f64, WireError> {
        Ok(f64::from_bits(self.number(what)?))
    }

    /// A count of items that take at least `least` bytes each.
    fn count(&mut self, what: &'static str, most: usize, least: u64) -> Result<usize, WireError> {
        let found = self.number(what)?;
        if found > most as u64 {
            return Err(WireError::TooMany { what, found, most });
        }
        let needed = found * least;
        match needed <= self.left.len() as u64 {
            true => Ok(found as usize),
            false => Err(WireError::Short { what, needed, left: self.left.len() }),
        }
    }

    fn name(&mut self) -> Result<&'a str, WireError> {
        let [length] = self.array("the length of a name")?;
        let bytes = self.bytes("a name", u64::from(length))?;
        std::str::from_utf8(bytes).map_err(|_| WireError::Name)
    }

    fn floats<T: FromIterator<f32>>(&mut self, what: &'static str) -> Result<T, WireError> {
        let needed = self.number(what)?.saturating_mul(4);
        let (numbers, _) = self.bytes(what, needed)?.as_chunks();
        Ok(numbers.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect())
    }
}

fn put_whole(out: &mut Vec<u8>, value: usize) {
    out.extend((value as u64).to_le_bytes());
}

fn put_floats(out: &mut Vec<u8>, values: &[f32]) {
    put_whole(out, values.len());
    let start = out.len();
    out.resize(start + 4 * values.len(), 0);
    let (places, _) = out[start..].as_chunks_mut();
    places.iter_mut().zip(values).for_each(|(place, value)| *place = value.to_le_bytes());
}

fn put_name(out: &mut Vec<u8>, name: &str) {
    out.push(u8::try_from(name.len()).expect("a name has at most 255 bytes"));
    out.extend(name.as_bytes());
}

impl Wire for Payload {
    const KIND: u16 = 1;
    const WHAT: &'static str = "arrays";

    fn write(&self, out: &mut Vec<u8>) {
        put_whole(out, self.len());
        for (name, values) in self.iter() {
            put_name(out, name);
            out.push(F32);
            put_floats(out, values);
        }
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        // An array takes at least a name length, a type and a count.
        let arrays = from.count("arrays", ARRAYS, 10)?;
        let (mut payload, mut last) = (Self::new(), None);
        for _ in 0..arrays {
            let name = from.name()?;
            if last.is_some_and(|last| last >= name) {
                return Err(WireError::Order { name: name.to_string() });
            }
            last = Some(name);
            match from.array("a type")? {
                [F32] => payload.put(name, from.floats::<Arc<[f32]>>("an array")?),
                [tag] => return Err(WireError::Type { name: name.to_string(), tag }),
            }
        }
        Ok(payload)
    }
}

impl Wire for Broadcast {
    const KIND: u16 = 2;
    const WHAT: &'static str = "a broadcast";

    fn write(&self, out: &mut Vec<u8>) {
        put_whole(out, self.round);
        put_floats(out, &self.global);
        self.payload.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        let (round, global) = (from.whole("the round")?, Arc::new(Params(from.floats("the weights")?)));
        Ok(Self { round, global, payload: Payload::read(from)? })
    }
}

impl Wire for Upload {
    const KIND: u16 = 3;
    const WHAT: &'static str = "an upload";

    fn write(&self, out: &mut Vec<u8>) {
        [self.round, self.client, self.examples, self.steps].into_iter().for_each(|value| put_whole(out, value));
        let sums: Vec<(&str, f64)> = self.terms.sums().collect();
        put_whole(out, sums.len());
        for (name, sum) in sums {
            put_name(out, name);
            out.extend(sum.to_le_bytes());
        }
        out.extend(self.terms.divisor().to_le_bytes());
        put_floats(out, &self.params);
        self.extra.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        let (round, client) = (from.whole("the round")?, from.whole("the client")?);
        let (examples, steps) = (from.whole("the samples")?, from.whole("the steps")?);
        let terms = from.count("terms", TermMeans::MOST, 9)?;
        let mut sums: Vec<(String, f64)> = Vec::with_capacity(terms);
        for _ in 0..terms {
            let name = from.name()?.to_string();
            if sums.iter().any(|(known, _)| *known == name) {
                return Err(WireError::Twice { name });
            }
            sums.push((name, from.float("a term")?));
        }
        let terms = TermMeans::from_sums(sums, from.float("the samples")?);
        let params = Params(from.floats("the weights")?);
        Ok(Self { round, client, examples, steps, terms, params, extra: Payload::read(from)? })
    }
}

impl Wire for ClientMemory {
    const KIND: u16 = 4;
    const WHAT: &'static str = "a client's memory";

    fn write(&self, out: &mut Vec<u8>) {
        put_whole(out, self.client);
        self.memory.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok(Self { client: from.whole("the client")?, memory: Payload::read(from)? })
    }
}

impl Wire for ServerState {
    const KIND: u16 = 5;
    const WHAT: &'static str = "a server's state";

    fn write(&self, out: &mut Vec<u8>) {
        put_whole(out, self.round);
        put_floats(out, &self.global);
        self.state.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        let (round, global) = (from.whole("the round")?, Arc::new(Params(from.floats("the weights")?)));
        Ok(Self { round, global, state: Payload::read(from)? })
    }
}

impl Wire for Finished {
    const KIND: u16 = 6;
    const WHAT: &'static str = "a client's finished round";

    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.teacher_passes.to_le_bytes());
        self.upload.write(out);
        self.memory.write(out);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, WireError> {
        let teacher_passes = from.number("the samples of teachers")?;
        Ok(Self { upload: Upload::read(from)?, memory: Payload::read(from)?, teacher_passes })
    }
}
