//! What was written, with the places it was written at. Nothing is checked here beyond the grammar.

use proc_macro2::{Ident, Span, TokenStream};
use quote::ToTokens;
use std::fmt;

/// Where something stands in the source: its first and its last token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) start: Span,
    pub(crate) end: Span,
}

impl Place {
    /// From the first to the last token of something that syn parsed.
    pub(crate) fn of(tokens: &impl ToTokens) -> Place {
        let mut spans = tokens.to_token_stream().into_iter().map(|token| token.span());
        let start = spans.next().unwrap_or_else(Span::call_site);
        Place { start, end: spans.last().unwrap_or(start) }
    }

    pub(crate) fn to(self, end: Place) -> Place {
        Place { start: self.start, end: end.end }
    }
}

impl From<Span> for Place {
    fn from(span: Span) -> Place {
        Place { start: span, end: span }
    }
}

impl From<&Ident> for Place {
    fn from(name: &Ident) -> Place {
        name.span().into()
    }
}

/// A whole network.
pub(crate) struct Source {
    /// Where generated code finds this library.
    pub(crate) facade: Facade,
    pub(crate) declaration: Declaration,
    /// The training steps: `TRAIN`, then constants of other names.
    pub(crate) trains: Vec<Settings>,
    pub(crate) infer: Option<Settings>,
    pub(crate) forward: Option<Function>,
    /// What else was written with the network.
    pub(crate) module: Module,
}

impl Source {
    /// The first training step.
    pub(crate) fn train(&self) -> Option<&Settings> {
        self.trains.first()
    }

    /// True if a training step has a name of its own.
    pub(crate) fn has_named_steps(&self) -> bool {
        self.trains.iter().any(|settings| settings.name != "TRAIN")
    }
}

/// The path by which the user's crate reaches this library: `::gpumem`, or what `crate = gm;` says.
#[derive(Clone)]
pub(crate) struct Facade(pub(crate) TokenStream);

impl Default for Facade {
    fn default() -> Facade {
        Facade(quote::quote!(::gpumem))
    }
}

impl Facade {
    /// The crate of this name.
    pub(crate) fn named(name: &str) -> Facade {
        let name = Ident::new(name, Span::call_site());
        Facade(quote::quote!(::#name))
    }

    /// Whether nothing was said.
    pub(crate) fn is_default(&self) -> bool {
        self.0.to_string() == Facade::default().0.to_string()
    }

    /// `use ::gpumem as __gpumem;`: in generated code every path begins with that name.
    pub(crate) fn import(&self) -> TokenStream {
        let Facade(path) = self;
        quote::quote!(#[allow(unused_imports)] use #path as __gpumem;)
    }
}

/// Names that see each other: those of a network, or of a module of blocks.
#[derive(Default)]
pub(crate) struct Module {
    pub(crate) blocks: Vec<Function>,
    pub(crate) operations: Vec<Operation>,
    pub(crate) constants: Vec<Constant>,
    /// `use` items of Rust, passed through.
    pub(crate) imports: Vec<TokenStream>,
    /// The names that they bring.
    pub(crate) imported: Vec<Ident>,
    /// `use blocks ..;`
    pub(crate) uses: Vec<Use>,
    /// The composites of the language, where one is named.
    pub(crate) composites: Option<Box<Module>>,
    /// Whether this is the module of the composites.
    pub(crate) is_of_composites: bool,
}

/// One module of a `use blocks path::to::resnet;`
pub(crate) struct Use {
    /// The name that it has here.
    pub(crate) name: Ident,
    pub(crate) path: TokenStream,
    /// Empty until it has been fetched.
    pub(crate) module: Module,
}

/// `pub struct Name<const BATCH: usize>;`
pub(crate) struct Declaration {
    pub(crate) attributes: Vec<syn::Attribute>,
    pub(crate) visibility: syn::Visibility,
    pub(crate) name: Ident,
    /// The name of the batch parameter, if the network is generic over it.
    pub(crate) batch: Option<Ident>,
    /// What the parameter is where it is left out, if that is written.
    pub(crate) default: Option<syn::Expr>,
}

/// `const TRAIN: Train = Train { .. };` or the same with `INFER`.
pub(crate) struct Settings {
    /// The constant's name, and where it stands.
    pub(crate) name: Ident,
    pub(crate) place: Place,
    /// Whether some of it could not be read, which has been reported.
    pub(crate) is_broken: bool,
    pub(crate) attributes: Vec<syn::Attribute>,
    pub(crate) fields: Vec<Field>,
}

/// `batch: 64`
pub(crate) struct Field {
    pub(crate) name: Ident,
    pub(crate) value: syn::Expr,
}

/// `const CLASSES: usize = 1000;`
pub(crate) struct Constant {
    pub(crate) attributes: Vec<syn::Attribute>,
    pub(crate) visibility: syn::Visibility,
    pub(crate) name: Ident,
    pub(crate) kind: TokenStream,
    /// The tokens after `=`.
    pub(crate) tokens: TokenStream,
    /// The same as an expression of the language, if it is one.
    pub(crate) value: Option<Expression>,
}

/// What stands in front of a function.
#[derive(Clone, Default)]
pub(crate) struct BlockAttributes {
    /// `#[freeze]`
    pub(crate) is_frozen: bool,
    /// `#[checkpoint]`
    pub(crate) is_computed_again: bool,
    /// The text of `#[name = ".."]`: the segment of paths for calls without a name of their own.
    pub(crate) name: Option<String>,
}

/// `fn forward(..) -> Logits<1000> { .. }`, or a block.
pub(crate) struct Function {
    /// The text of its `///` lines.
    pub(crate) docs: String,
    pub(crate) name: Ident,
    pub(crate) parameters: Vec<Parameter>,
    /// Whether a parameter could not be read, which has been reported.
    pub(crate) is_broken: bool,
    /// Where the parentheses are.
    pub(crate) signature: Place,
    /// What stands after `->`: several types in parentheses, or one. None after a mistake.
    pub(crate) outputs: Vec<Type>,
    pub(crate) attributes: BlockAttributes,
    pub(crate) body: Body,
}

pub(crate) struct Parameter {
    pub(crate) name: Ident,
    pub(crate) kind: Type,
    /// What it is where it is left out; composites have such.
    pub(crate) default: Option<Expression>,
}

/// `usize`, `Image<3, 224, 224>`
pub(crate) struct Type {
    pub(crate) name: Ident,
    /// `u8` of `Images<u8, 3, 224, 224>`.
    pub(crate) format: Option<Ident>,
    pub(crate) dimensions: Vec<Expression>,
    pub(crate) place: Place,
    /// Whether it could not be read, which has been reported.
    pub(crate) is_broken: bool,
}

impl Type {
    /// Its sizes as they stand between `<` and `>`.
    pub(crate) fn sizes(dimensions: &[Expression]) -> String {
        let size = |dimension: &Expression| match dimension.kind {
            Kind::Integer(_) | Kind::Name(_) => dimension.to_string(),
            _ => format!("{{ {dimension} }}"),
        };
        dimensions.iter().map(size).collect::<Vec<_>>().join(", ")
    }

    /// What should have been a type.
    pub(crate) fn broken(place: Place) -> Type {
        Type { name: Ident::new("_unread", place.start), format: None, dimensions: Vec::new(), place, is_broken: true }
    }
}

/// `fn Swish(x, beta: f64 = 1.0) { x * sigmoid(beta * x) }`: a layer of the user's.
pub(crate) struct Operation {
    /// The text of its `///` lines.
    pub(crate) docs: String,
    pub(crate) name: Ident,
    /// What the value that arrives is called.
    pub(crate) input: Ident,
    /// The axes of that value; none where they may be any.
    pub(crate) axes: Option<Vec<Axis>>,
    pub(crate) arguments: Vec<Asked>,
    /// The axes of the output; none where they are those of the input.
    pub(crate) output: Option<Vec<Axis>>,
    /// Whether some of it could not be read or is wrong, which has been reported.
    pub(crate) is_broken: bool,
    /// The formula, if it is one.
    pub(crate) value: Option<Body>,
    pub(crate) slope: Option<Slope>,
    /// What must hold.
    pub(crate) requires: Vec<Expression>,
    pub(crate) parameters: Vec<Tensor>,
    /// What the forward pass leaves for the backward pass.
    pub(crate) saves: Vec<Tensor>,
    /// What backward reads of input, output and parameters.
    pub(crate) keeps: Vec<Ident>,
    pub(crate) workspace: Option<Expression>,
    pub(crate) threads: Option<Expression>,
    pub(crate) macs: Option<Expression>,
    pub(crate) cpu: Option<syn::Path>,
    pub(crate) cuda: Option<syn::LitStr>,
}

impl Operation {
    /// One of which nothing but the name is known.
    pub(crate) fn new(docs: String, name: Ident) -> Operation {
        Operation {
            docs,
            input: name.clone(),
            name,
            axes: None,
            arguments: Vec::new(),
            output: None,
            is_broken: true,
            value: None,
            slope: None,
            requires: Vec::new(),
            parameters: Vec::new(),
            saves: Vec::new(),
            keeps: Vec::new(),
            workspace: None,
            threads: None,
            macs: None,
            cpu: None,
            cuda: None,
        }
    }

    /// Whether it has anything that a formula has not.
    pub(crate) fn has_functions(&self) -> bool {
        let tensors = [self.parameters.len(), self.saves.len(), self.keeps.len()].iter().any(|&count| count > 0);
        let numbers = [&self.workspace, &self.threads, &self.macs].iter().any(|number| number.is_some());
        tensors || numbers || self.cpu.is_some() || self.cuda.is_some()
    }
}

/// `derivative: 1.0 - y * y`
pub(crate) struct Slope {
    /// The field's name.
    pub(crate) name: Ident,
    pub(crate) formula: Body,
}

/// An axis of a tensor of an operation.
pub(crate) enum Axis {
    /// `rows..`: any number of axes.
    Rest(Ident),
    /// One of this length; in an input a name is bound to it.
    Length(Expression),
}

impl Axis {
    /// The name, if it stands for any number of axes.
    pub(crate) fn rest(&self) -> Option<&Ident> {
        match self {
            Axis::Rest(name) => Some(name),
            Axis::Length(_) => None,
        }
    }
}

impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Axis::Rest(name) => write!(f, "{name}.."),
            Axis::Length(length) => length.fmt(f),
        }
    }
}

/// `beta: f64 = 1.0`
pub(crate) struct Asked {
    pub(crate) name: Ident,
    /// `usize`, `f64` or `bool`
    pub(crate) kind: Ident,
    pub(crate) default: Option<Expression>,
}

/// `weight: [channels] = 1.0`
pub(crate) struct Tensor {
    pub(crate) name: Ident,
    pub(crate) axes: Vec<Axis>,
    pub(crate) init: Option<Expression>,
}

/// What is between a function's braces.
pub(crate) struct Body {
    pub(crate) lets: Vec<Let>,
    pub(crate) element: Expression,
}

/// `let w = Embedding(50257, 768);`
pub(crate) struct Let {
    pub(crate) name: Ident,
    pub(crate) element: Expression,
}

/// An element or a value. Names are not resolved yet, so the two cannot be told apart everywhere.
pub(crate) struct Expression {
    /// Distinct for each expression of a network. A mistake in one is reported once, however often it is unrolled.
    pub(crate) id: usize,
    pub(crate) place: Place,
    pub(crate) kind: Kind,
}

impl Expression {
    /// The expressions that it consists of, in the order in which they stand.
    pub(crate) fn parts(&self) -> Vec<&Expression> {
        match &self.kind {
            Kind::Call { arguments, .. } | Kind::Path { arguments: Some(arguments), .. } => {
                arguments.iter().map(|argument| &argument.value).collect()
            }
            Kind::List(elements) | Kind::Tuple(elements) => elements.iter().collect(),
            Kind::Binary { operands, .. } => operands.iter().collect(),
            Kind::If { condition, then, otherwise } => {
                [condition, then].into_iter().chain(otherwise).map(|part| &**part).collect()
            }
            Kind::Not(value) | Kind::Negative(value) => vec![value],
            Kind::Integer(_) | Kind::Float(_) | Kind::Flag(_) | Kind::Text(_) | Kind::Name(_) | Kind::Broken => {
                Vec::new()
            }
            Kind::Path { arguments: None, .. } => Vec::new(),
        }
    }

    /// It and every expression within it, however deep, in the order in which they begin.
    pub(crate) fn all(&self) -> Vec<&Expression> {
        let (mut all, mut open) = (Vec::new(), vec![self]);
        while let Some(expression) = open.pop() {
            all.push(expression);
            open.extend(expression.parts().into_iter().rev());
        }
        all
    }
}

impl Body {
    /// Every expression that stands in it, however deep, in the order in which they begin.
    pub(crate) fn expressions(&self) -> Vec<&Expression> {
        let elements = self.lets.iter().map(|binding| &binding.element).chain([&self.element]);
        elements.flat_map(Expression::all).collect()
    }
}

pub(crate) enum Kind {
    Integer(u64),
    Float(f64),
    Flag(bool),
    Text(String),
    /// `Relu`, `channels`
    Name(Ident),
    /// `Conv2d(64, 3, padding = 1)`
    Call {
        name: Ident,
        arguments: Vec<Argument>,
    },
    /// `resnet::bottleneck(64)`: a block of a module. Without parentheses there are no arguments.
    Path {
        module: Ident,
        name: Ident,
        arguments: Option<Vec<Argument>>,
    },
    /// `[a, b, c]`
    List(Vec<Expression>),
    /// `(3, 5)`, two values or more
    Tuple(Vec<Expression>),
    If {
        condition: Box<Expression>,
        then: Box<Expression>,
        otherwise: Option<Box<Expression>>,
    },
    Not(Box<Expression>),
    Negative(Box<Expression>),
    Binary {
        operator: Operator,
        operands: Box<[Expression; 2]>,
    },
    /// Could not be read; the mistake has been reported.
    Broken,
}

/// `64`, `padding = 1`
pub(crate) struct Argument {
    pub(crate) name: Option<Ident>,
    pub(crate) value: Expression,
}

impl Argument {
    pub(crate) fn place(&self) -> Place {
        match &self.name {
            Some(name) => Place::from(name).to(self.value.place),
            None => self.value.place,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operator {
    Or,
    And,
    Equal,
    NotEqual,
    LessOrEqual,
    GreaterOrEqual,
    Less,
    Greater,
    Plus,
    Minus,
    Times,
    Over,
    Remainder,
}

impl Operator {
    pub(crate) const ALL: [Operator; 13] = [
        Operator::Or,
        Operator::And,
        Operator::Equal,
        Operator::NotEqual,
        Operator::LessOrEqual,
        Operator::GreaterOrEqual,
        Operator::Less,
        Operator::Greater,
        Operator::Plus,
        Operator::Minus,
        Operator::Times,
        Operator::Over,
        Operator::Remainder,
    ];

    /// As in Rust: what binds tighter has a higher number.
    pub(crate) fn precedence(self) -> u8 {
        match self {
            Operator::Or => 1,
            Operator::And => 2,
            Operator::Equal
            | Operator::NotEqual
            | Operator::LessOrEqual
            | Operator::GreaterOrEqual
            | Operator::Less
            | Operator::Greater => 3,
            Operator::Plus | Operator::Minus => 4,
            Operator::Times | Operator::Over | Operator::Remainder => 5,
        }
    }

    /// The layer that joins branches as this joins numbers.
    pub(crate) fn join(self) -> Option<&'static str> {
        match self {
            Operator::Plus => Some("Add"),
            Operator::Minus => Some("Sub"),
            Operator::Times => Some("Mul"),
            Operator::Over => Some("Div"),
            _ => None,
        }
    }

    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Operator::Or => "||",
            Operator::And => "&&",
            Operator::Equal => "==",
            Operator::NotEqual => "!=",
            Operator::LessOrEqual => "<=",
            Operator::GreaterOrEqual => ">=",
            Operator::Less => "<",
            Operator::Greater => ">",
            Operator::Plus => "+",
            Operator::Minus => "-",
            Operator::Times => "*",
            Operator::Over => "/",
            Operator::Remainder => "%",
        }
    }
}

/// The source in short, for messages: `Conv2d(64, 3, padding = 1)`; what is inside a list is left out.
impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Integer(value) => write!(f, "{value}"),
            Kind::Float(value) => write!(f, "{value:?}"),
            Kind::Flag(value) => write!(f, "{value}"),
            Kind::Text(value) => write!(f, "{value:?}"),
            Kind::Name(name) => write!(f, "{name}"),
            Kind::Call { name, arguments } => write!(f, "{name}({})", listed(arguments)),
            Kind::Path { module, name, arguments: None } => write!(f, "{module}::{name}"),
            Kind::Path { module, name, arguments: Some(arguments) } => {
                write!(f, "{module}::{name}({})", listed(arguments))
            }
            Kind::List(elements) if elements.is_empty() => f.write_str("[]"),
            Kind::List(_) => f.write_str("[..]"),
            Kind::Tuple(values) => {
                let values: Vec<String> = values.iter().map(ToString::to_string).collect();
                write!(f, "({})", values.join(", "))
            }
            Kind::If { condition, .. } => write!(f, "if {condition} {{ .. }}"),
            Kind::Not(value) => write!(f, "!{}", Operand(value, u8::MAX)),
            Kind::Negative(value) => write!(f, "-{}", Operand(value, u8::MAX)),
            Kind::Binary { operator, operands: pair } => {
                let binds = operator.precedence();
                write!(f, "{} {} {}", Operand(&pair[0], binds), operator.symbol(), Operand(&pair[1], binds + 1))
            }
            Kind::Broken => f.write_str(".."),
        }
    }
}

/// An expression beside an operator, which takes it as it was written where it binds as tight as this at least. Otherwise it
/// needs parentheses: none are kept where they were.
pub(crate) struct Operand<'e>(pub(crate) &'e Expression, pub(crate) u8);

impl fmt::Display for Operand<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Operand(operand, least) = self;
        match operand.kind {
            Kind::Binary { operator, .. } if operator.precedence() < *least => write!(f, "({operand})"),
            _ => operand.fmt(f),
        }
    }
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} = {}", self.value),
            None => self.value.fmt(f),
        }
    }
}

/// `64, 3, padding = 1`
fn listed(arguments: &[Argument]) -> String {
    arguments.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
