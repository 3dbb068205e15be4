//! An interpreter for the part of pickle that a state dict needs. It builds dicts, lists, tuples and tensors, and calls no code.

use crate::source::{Kind, MOST_DIMENSIONS};
use std::collections::{BTreeSet, HashMap};

/// The most values that a pickle may create: 20 for each of 200 000 tensors.
const MOST_VALUES: usize = 4 << 20;

/// The most names of refused globals that are kept, and the most characters of one. A pickle could otherwise fill memory with long names.
const MOST_REFUSED: usize = 20;
const LONGEST_NAME: usize = 200;

/// A value. Containers are indices into the lists of [`Machine`], so that no value is nested or cyclic.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Value<'p> {
    Int(i64),
    Text(&'p str),
    Tuple(usize),
    List(usize),
    Dict(usize),
    Storage(usize),
    Tensor(usize),
    Global(Global),
    /// The result of a refused global, or of a call of it.
    Refused,
    /// A value that is no part of a tensor.
    Other,
    Mark,
}

/// A global that a state dict may name.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Global {
    OrderedDict,
    Tensor,
    Parameter,
    Size,
    Storage(Kind),
}

/// Returns the global of this name; `None` for any other.
fn global(module: &str, name: &str) -> Option<Global> {
    let kind = match (module, name) {
        ("collections", "OrderedDict") => return Some(Global::OrderedDict),
        ("torch._utils", "_rebuild_tensor_v2") => return Some(Global::Tensor),
        ("torch._utils", "_rebuild_parameter") => return Some(Global::Parameter),
        ("torch", "Size") => return Some(Global::Size),
        ("torch", "FloatStorage") => Kind::F32,
        ("torch", "HalfStorage") => Kind::F16,
        ("torch", "BFloat16Storage") => Kind::Bf16,
        ("torch", "DoubleStorage") => Kind::F64,
        ("torch", "LongStorage") => Kind::I64,
        ("torch", "IntStorage") => Kind::Other("I32", 4),
        ("torch", "ShortStorage") => Kind::Other("I16", 2),
        ("torch", "CharStorage") => Kind::Other("I8", 1),
        ("torch", "ByteStorage") => Kind::Other("U8", 1),
        ("torch", "BoolStorage") => Kind::Other("BOOL", 1),
        _ => return None,
    };
    Some(Global::Storage(kind))
}

/// A storage: a record of the archive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Storage<'p> {
    pub(super) kind: Kind,
    /// The record's name in the folder `data`.
    pub(super) key: &'p str,
    pub(super) elements: u64,
}

/// A tensor: a view of a storage.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    pub(super) storage: usize,
    pub(super) offset: u64,
    pub(super) shape: Vec<u64>,
    pub(super) strides: Vec<u64>,
}

/// A machine that reads one pickle.
#[derive(Default)]
pub(super) struct Machine<'p> {
    stack: Vec<Value<'p>>,
    memo: HashMap<u64, Value<'p>>,
    values: usize,
    tuples: Vec<Vec<Value<'p>>>,
    lists: Vec<Vec<Value<'p>>>,
    pub(super) dicts: Vec<Vec<(Value<'p>, Value<'p>)>>,
    pub(super) storages: Vec<Storage<'p>>,
    pub(super) tensors: Vec<Tensor>,
    /// Names of globals that a state dict does not need.
    pub(super) refused: BTreeSet<String>,
}

type Parsed<T> = Result<T, String>;

/// The unread bytes of the pickle.
struct Rest<'p>(&'p [u8]);

impl<'p> Rest<'p> {
    /// Reads `count` bytes.
    fn take(&mut self, count: u64) -> Parsed<&'p [u8]> {
        let parts = usize::try_from(count).ok().and_then(|count| self.0.split_at_checked(count));
        let (first, rest) = parts.ok_or("it ends in the middle of a value")?;
        self.0 = rest;
        Ok(first)
    }

    /// Reads a number of `count` bytes, at most 8, little-endian.
    fn number(&mut self, count: u64) -> Parsed<u64> {
        Ok(self.take(count)?.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    /// Reads a text of `count` bytes.
    fn text(&mut self, count: u64) -> Parsed<&'p str> {
        std::str::from_utf8(self.take(count)?).map_err(|_| "a text is not UTF-8".into())
    }

    /// Reads a text that ends with its line.
    fn line(&mut self) -> Parsed<&'p str> {
        let end = self.0.iter().position(|&byte| byte == b'\n').ok_or("it ends in the middle of a name")?;
        let line = self.text(end as u64)?;
        self.take(1)?;
        Ok(line)
    }
}

impl<'p> Machine<'p> {
    /// Reads a pickle to its end, and returns its value.
    pub(super) fn run(&mut self, pickle: &'p [u8]) -> Parsed<Value<'p>> {
        let mut rest = Rest(pickle);
        loop {
            let opcode = rest.take(1)?[0];
            if opcode == b'.' {
                return self.pop();
            }
            self.step(opcode, &mut rest)?;
        }
    }

    /// Runs one operation.
    fn step(&mut self, opcode: u8, rest: &mut Rest<'p>) -> Parsed<()> {
        let value = match opcode {
            // PROTO and FRAME are not needed.
            0x80 => return rest.take(1).map(drop),
            0x95 => return rest.take(8).map(drop),
            b'(' => Value::Mark,
            // None, True, False and floats.
            b'N' | 0x88 | 0x89 => Value::Other,
            b'G' => rest.take(8).map(|_| Value::Other)?,
            b'J' => Value::Int(i64::from(rest.number(4)? as u32 as i32)),
            b'K' => Value::Int(rest.number(1)? as i64),
            b'M' => Value::Int(rest.number(2)? as i64),
            0x8a => long(rest)?,
            b'X' => text(rest, 4)?,
            0x8c => text(rest, 1)?,
            0x8d => text(rest, 8)?,
            b'U' => bytes(rest, 1)?,
            b'T' => bytes(rest, 4)?,
            b'C' => bytes(rest, 1)?,
            b'B' => bytes(rest, 4)?,
            0x8e => bytes(rest, 8)?,
            b'}' => self.dict(Vec::new()),
            // Sets are lists here.
            b']' | 0x8f => self.list(Vec::new()),
            b')' => self.tuple(Vec::new()),
            b't' => {
                let items = self.since_mark()?;
                self.tuple(items)
            }
            0x85..=0x87 => {
                let at = self.stack.len().checked_sub(usize::from(opcode - 0x84)).ok_or(EMPTY)?;
                let items = self.stack.split_off(at);
                self.tuple(items)
            }
            b'q' => return self.remember(rest.number(1)?),
            b'r' => return self.remember(rest.number(4)?),
            0x94 => return self.remember(self.memo.len() as u64),
            b'h' => self.recalled(rest.number(1)?)?,
            b'j' => self.recalled(rest.number(4)?)?,
            b'c' => {
                let (module, name) = (rest.line()?, rest.line()?);
                self.global(module, name)
            }
            0x93 => match (self.pop()?, self.pop()?) {
                (Value::Text(name), Value::Text(module)) => self.global(module, name),
                _ => return Err("a global has no name".into()),
            },
            b'Q' => {
                let id = self.pop()?;
                self.storage(id)?
            }
            // REDUCE and NEWOBJ.
            b'R' | 0x81 => {
                let (arguments, callee) = (self.pop()?, self.pop()?);
                self.called(callee, arguments)?
            }
            // BUILD: the state of an object, such as the `_metadata` of a state dict.
            b'b' => return self.pop().map(drop),
            b'a' | b's' | b'e' | b'u' | 0x90 => return self.add(opcode),
            b'0' => return self.pop().map(drop),
            b'1' => return self.since_mark().map(drop),
            _ => return Err(format!("a state dict has no need of the operation {opcode:#04x}")),
        };
        self.push(value)
    }

    fn push(&mut self, value: Value<'p>) -> Parsed<()> {
        self.values += 1;
        if self.values > MOST_VALUES {
            return Err(format!("it makes more than {MOST_VALUES} values"));
        }
        self.stack.push(value);
        Ok(())
    }

    fn pop(&mut self) -> Parsed<Value<'p>> {
        self.stack.pop().ok_or_else(|| EMPTY.into())
    }

    /// Pops all values above the last mark, and the mark.
    fn since_mark(&mut self) -> Parsed<Vec<Value<'p>>> {
        let mark = self.stack.iter().rposition(|value| *value == Value::Mark).ok_or("a mark is missing")?;
        let items = self.stack.split_off(mark + 1);
        self.stack.pop();
        Ok(items)
    }

    fn dict(&mut self, items: Vec<(Value<'p>, Value<'p>)>) -> Value<'p> {
        self.dicts.push(items);
        Value::Dict(self.dicts.len() - 1)
    }

    fn list(&mut self, items: Vec<Value<'p>>) -> Value<'p> {
        self.lists.push(items);
        Value::List(self.lists.len() - 1)
    }

    fn tuple(&mut self, items: Vec<Value<'p>>) -> Value<'p> {
        self.tuples.push(items);
        Value::Tuple(self.tuples.len() - 1)
    }

    /// Stores the last value in the memo under a number.
    fn remember(&mut self, key: u64) -> Parsed<()> {
        let last = *self.stack.last().ok_or(EMPTY)?;
        self.memo.insert(key, last);
        if self.memo.len() > self.values {
            return Err("it remembers more values than it makes".into());
        }
        Ok(())
    }

    fn recalled(&self, key: u64) -> Parsed<Value<'p>> {
        self.memo.get(&key).copied().ok_or_else(|| "it recalls a value that it has not made".into())
    }

    /// Returns a global, and keeps the name of one that is refused.
    fn global(&mut self, module: &str, name: &str) -> Value<'p> {
        global(module, name).map_or_else(
            || {
                if self.refused.len() < MOST_REFUSED {
                    let letters = module.chars().chain(['.']).chain(name.chars());
                    self.refused.insert(letters.take(LONGEST_NAME).collect());
                }
                Value::Refused
            },
            Value::Global,
        )
    }

    /// Adds values above a container on the stack to it: one item, or all since the mark.
    fn add(&mut self, opcode: u8) -> Parsed<()> {
        let items = match opcode {
            b'a' => vec![self.pop()?],
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                vec![key, value]
            }
            _ => self.since_mark()?,
        };
        let is_dict = matches!(opcode, b's' | b'u');
        match *self.stack.last().ok_or(EMPTY)? {
            Value::List(list) if !is_dict => self.lists[list].extend(items),
            Value::Dict(dict) if is_dict => {
                self.dicts[dict].extend(items.as_chunks().0.iter().map(|&[key, value]| (key, value)));
            }
            Value::Refused => {}
            _ => return Err("it adds to something that holds nothing".into()),
        }
        Ok(())
    }

    /// Returns the storage of a persistent id: `("storage", torch.FloatStorage, key, device, elements)`.
    fn storage(&mut self, id: Value<'p>) -> Parsed<Value<'p>> {
        let items = self.items(id);
        match *items {
            [
                Value::Text("storage"),
                Value::Global(Global::Storage(kind)),
                Value::Text(key),
                _,
                Value::Int(elements),
            ] => {
                let elements = u64::try_from(elements).map_err(|_| "a storage has a negative size")?;
                self.storages.push(Storage { kind, key, elements });
                Ok(Value::Storage(self.storages.len() - 1))
            }
            [Value::Text("storage"), Value::Refused, ..] => Ok(Value::Refused),
            _ => Err("a storage is not described as PyTorch does".into()),
        }
    }

    /// Returns the items of a tuple; none for other values.
    fn items(&self, value: Value<'p>) -> &[Value<'p>] {
        match value {
            Value::Tuple(tuple) => &self.tuples[tuple],
            _ => &[],
        }
    }

    /// Returns the result of a call: a dict, a shape or a tensor. All other calls are refused.
    fn called(&mut self, callee: Value<'p>, arguments: Value<'p>) -> Parsed<Value<'p>> {
        let first = self.items(arguments).first().copied();
        match (callee, first) {
            (Value::Refused, _) => Ok(Value::Refused),
            (Value::Global(Global::OrderedDict), None) => Ok(self.dict(Vec::new())),
            (Value::Global(Global::OrderedDict), Some(Value::List(list))) => {
                let pair = |value: &Value<'p>| {
                    let items = match *value {
                        Value::List(pair) => &self.lists[pair],
                        other => self.items(other),
                    };
                    Some((*items.first()?, *items.get(1)?))
                };
                let pairs: Vec<_> = self.lists[list].iter().filter_map(pair).collect();
                self.values += pairs.len();
                Ok(self.dict(pairs))
            }
            (Value::Global(Global::Size), Some(tuple @ Value::Tuple(_))) => Ok(tuple),
            (Value::Global(Global::Parameter), Some(tensor @ (Value::Tensor(_) | Value::Refused))) => Ok(tensor),
            (Value::Global(Global::Tensor), Some(_)) => self.tensor(arguments),
            _ => Err("it calls something in a way that no state dict does".into()),
        }
    }

    /// Returns the tensor of `_rebuild_tensor_v2(storage, offset, size, stride, ..)`.
    fn tensor(&mut self, arguments: Value<'p>) -> Parsed<Value<'p>> {
        let (storage, offset, shape, strides) = match *self.items(arguments) {
            [Value::Storage(storage), Value::Int(offset), shape @ Value::Tuple(_), strides @ Value::Tuple(_), ..] => {
                (storage, offset, self.numbers(shape), self.numbers(strides))
            }
            [Value::Refused, ..] => return Ok(Value::Refused),
            _ => return Err("a tensor is not described as PyTorch does".into()),
        };
        let (Ok(offset), Some(shape), Some(strides)) = (u64::try_from(offset), shape, strides) else {
            return Err("a tensor has a negative size, stride or offset".into());
        };
        if shape.len().max(strides.len()) > MOST_DIMENSIONS {
            return Err(format!("a tensor has more than {MOST_DIMENSIONS} dimensions"));
        }
        self.values += shape.len() + strides.len();
        self.tensors.push(Tensor { storage, offset, shape, strides });
        Ok(Value::Tensor(self.tensors.len() - 1))
    }

    /// Returns a tuple's numbers; `None` if an item is negative or not a number.
    fn numbers(&self, tuple: Value<'p>) -> Option<Vec<u64>> {
        let number = |value: &Value<'p>| match *value {
            Value::Int(number) => u64::try_from(number).ok(),
            _ => None,
        };
        self.items(tuple).iter().map(number).collect()
    }
}

const EMPTY: &str = "it takes a value where there is none";

/// Reads a text that follows its length.
fn text<'p>(rest: &mut Rest<'p>, size: u64) -> Parsed<Value<'p>> {
    let count = rest.number(size)?;
    Ok(Value::Text(rest.text(count)?))
}

/// Skips bytes, which are no part of a tensor.
fn bytes<'p>(rest: &mut Rest<'p>, size: u64) -> Parsed<Value<'p>> {
    let count = rest.number(size)?;
    rest.take(count)?;
    Ok(Value::Other)
}

/// Reads a whole number of any length. One beyond 64 bits is no size of a tensor.
fn long<'p>(rest: &mut Rest<'p>) -> Parsed<Value<'p>> {
    let count = rest.number(1)?;
    let bytes = rest.take(count)?;
    if count > 8 {
        return Ok(Value::Other);
    }
    let sign = if bytes.last().is_some_and(|last| last & 0x80 != 0) { -1 } else { 0 };
    Ok(Value::Int(bytes.iter().rev().fold(sign, |number, &byte| number << 8 | i64::from(byte))))
}
