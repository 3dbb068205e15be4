//! The syntax tree of a network, with places in the source. Only the grammar is checked here.

use proc_macro2::{Ident, Span, TokenStream};
use quote::ToTokens;
use std::fmt;

/// A place in the source: the spans of the first and the last token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) start: Span,
    pub(crate) end: Span,
}

impl Place {
    /// Returns the place from the first to the last token of a syntax node.
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
    /// The path of this library in generated code.
    pub(crate) facade: Facade,
    pub(crate) declaration: Declaration,
    /// The training steps: `TRAIN`, then constants of other names.
    pub(crate) trains: Vec<Settings>,
    pub(crate) infer: Option<Settings>,
    pub(crate) forward: Option<Function>,
    /// All other items of the network.
    pub(crate) module: Module,
}

impl Source {
    /// Returns the first training step, or `None` if there is none.
    pub(crate) fn train(&self) -> Option<&Settings> {
        self.trains.first()
    }

    /// True if a training step has a name of its own.
    pub(crate) fn has_named_steps(&self) -> bool {
        self.trains.iter().any(|settings| settings.name != "TRAIN")
    }
}

/// The path by which the user's crate reaches this library: `::gpumem`, or the path in `crate = gm;`.
#[derive(Clone)]
pub(crate) struct Facade(pub(crate) TokenStream);

impl Default for Facade {
    fn default() -> Facade {
        Facade(quote::quote!(::gpumem))
    }
}

impl Facade {
    /// Returns the path of the crate with this name.
    pub(crate) fn named(name: &str) -> Facade {
        let name = Ident::new(name, Span::call_site());
        Facade(quote::quote!(::#name))
    }

    /// True if the path is the default one.
    pub(crate) fn is_default(&self) -> bool {
        self.0.to_string() == Facade::default().0.to_string()
    }

    /// Returns `use ::gpumem as __gpumem;`. In generated code, every path begins with that name.
    pub(crate) fn import(&self) -> TokenStream {
        let Facade(path) = self;
        quote::quote!(#[allow(unused_imports)] use #path as __gpumem;)
    }
}

/// Items that can refer to each other: those of a network, or of a module of blocks.
#[derive(Default)]
pub(crate) struct Module {
    pub(crate) blocks: Vec<Function>,
    pub(crate) operations: Vec<Operation>,
    pub(crate) constants: Vec<Constant>,
    /// `use` items of Rust, passed through.
    pub(crate) imports: Vec<TokenStream>,
    /// The names that these imports introduce, except those of `*`.
    pub(crate) imported: Vec<Ident>,
    /// The modules imported with `use blocks ..;`.
    pub(crate) uses: Vec<Use>,
    /// The composites of the language. `None` if the tokens name none of them.
    pub(crate) composites: Option<Box<Module>>,
    /// True if this is the module of the composites.
    pub(crate) is_of_composites: bool,
}

/// One module of a `use blocks path::to::resnet;`.
pub(crate) struct Use {
    /// The name by which it is called here.
    pub(crate) name: Ident,
    pub(crate) path: TokenStream,
    /// Empty until it has been fetched.
    pub(crate) module: Module,
}

/// A declaration such as `pub struct Name<const BATCH: usize>;`.
pub(crate) struct Declaration {
    pub(crate) attributes: Vec<syn::Attribute>,
    pub(crate) visibility: syn::Visibility,
    pub(crate) name: Ident,
    /// The name of the batch parameter, if the network is generic over it.
    pub(crate) batch: Option<Ident>,
    /// The default value of the batch parameter, if one is written.
    pub(crate) default: Option<syn::Expr>,
}

/// A constant with settings: `const TRAIN: Train = Train { .. };`, or `INFER`.
pub(crate) struct Settings {
    /// The constant's name. The next field is its place.
    pub(crate) name: Ident,
    pub(crate) place: Place,
    /// True if a part could not be read, which has been reported.
    pub(crate) is_broken: bool,
    pub(crate) attributes: Vec<syn::Attribute>,
    pub(crate) fields: Vec<Field>,
}

/// A field of `TRAIN` or `INFER`, as `batch: 64`.
pub(crate) struct Field {
    pub(crate) name: Ident,
    pub(crate) value: syn::Expr,
}

/// A constant such as `const CLASSES: usize = 1000;`.
pub(crate) struct Constant {
    pub(crate) attributes: Vec<syn::Attribute>,
    pub(crate) visibility: syn::Visibility,
    pub(crate) name: Ident,
    pub(crate) kind: TokenStream,
    /// The tokens after `=`.
    pub(crate) tokens: TokenStream,
    /// The value as an expression of the language. `None` if it is only valid Rust.
    pub(crate) value: Option<Expression>,
}

/// The attributes of a function.
#[derive(Clone, Default)]
pub(crate) struct BlockAttributes {
    /// True if it has `#[freeze]`.
    pub(crate) is_frozen: bool,
    /// True if it has `#[checkpoint]`.
    pub(crate) is_computed_again: bool,
    /// The text of `#[name = ".."]`: the segment of paths for calls without a name of their own.
    pub(crate) name: Option<String>,
}

/// A function: `fn forward(..) -> Logits<1000> { .. }`, or a block.
pub(crate) struct Function {
    /// The text of its `///` lines.
    pub(crate) docs: String,
    pub(crate) name: Ident,
    pub(crate) parameters: Vec<Parameter>,
    /// True if a parameter could not be read, which has been reported.
    pub(crate) is_broken: bool,
    /// The place of the parentheses.
    pub(crate) signature: Place,
    /// The types after `->`: one, or several in parentheses. Empty after a mistake.
    pub(crate) outputs: Vec<Type>,
    pub(crate) attributes: BlockAttributes,
    pub(crate) body: Body,
}

pub(crate) struct Parameter {
    pub(crate) name: Ident,
    pub(crate) kind: Type,
    /// The value if the argument is left out. Only composites have such defaults.
    pub(crate) default: Option<Expression>,
}

/// A type, as `usize` or `Image<3, 224, 224>`.
pub(crate) struct Type {
    pub(crate) name: Ident,
    /// The number format, as `u8` of `Images<u8, 3, 224, 224>`. `None` for other types.
    pub(crate) format: Option<Ident>,
    pub(crate) dimensions: Vec<Expression>,
    pub(crate) place: Place,
    /// True if the type could not be read, which has been reported.
    pub(crate) is_broken: bool,
}

impl Type {
    /// Returns sizes in the form that they have between `<` and `>`.
    pub(crate) fn sizes(dimensions: &[Expression]) -> String {
        let size = |dimension: &Expression| match dimension.kind {
            Kind::Integer(_) | Kind::Name(_) => dimension.to_string(),
            _ => format!("{{ {dimension} }}"),
        };
        dimensions.iter().map(size).collect::<Vec<_>>().join(", ")
    }

    /// Returns a placeholder for a type that could not be read.
    pub(crate) fn broken(place: Place) -> Type {
        Type { name: Ident::new("_unread", place.start), format: None, dimensions: Vec::new(), place, is_broken: true }
    }
}

/// A layer that the user declares: `fn Swish(x, beta: f64 = 1.0) { x * sigmoid(beta * x) }`.
pub(crate) struct Operation {
    /// The text of its `///` lines.
    pub(crate) docs: String,
    pub(crate) name: Ident,
    /// The name of the input.
    pub(crate) input: Ident,
    /// The axes of the input. `None` if its shape may be any.
    pub(crate) axes: Option<Vec<Axis>>,
    pub(crate) arguments: Vec<Asked>,
    /// The axes of the output. `None` if they are those of the input.
    pub(crate) output: Option<Vec<Axis>>,
    /// True if a part could not be read or is wrong, which has been reported.
    pub(crate) is_broken: bool,
    /// The formula. `None` if the operation has functions instead.
    pub(crate) value: Option<Body>,
    pub(crate) slope: Option<Slope>,
    /// Conditions that must hold.
    pub(crate) requires: Vec<Expression>,
    pub(crate) parameters: Vec<Tensor>,
    /// Tensors that the forward pass saves for the backward pass.
    pub(crate) saves: Vec<Tensor>,
    /// Names of the input, the output and parameters that the backward pass reads.
    pub(crate) keeps: Vec<Ident>,
    pub(crate) workspace: Option<Expression>,
    pub(crate) threads: Option<Expression>,
    pub(crate) macs: Option<Expression>,
    pub(crate) cpu: Option<syn::Path>,
    pub(crate) cuda: Option<syn::LitStr>,
}

impl Operation {
    /// Returns an operation of which only the name is known.
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

    /// True if it has fields that are only for operations with functions.
    pub(crate) fn has_functions(&self) -> bool {
        let tensors = [self.parameters.len(), self.saves.len(), self.keeps.len()].iter().any(|&count| count > 0);
        let numbers = [&self.workspace, &self.threads, &self.macs].iter().any(|number| number.is_some());
        tensors || numbers || self.cpu.is_some() || self.cuda.is_some()
    }
}

/// The field `derivative: 1.0 - y * y`.
pub(crate) struct Slope {
    /// The identifier of the field.
    pub(crate) name: Ident,
    pub(crate) formula: Body,
}

/// An axis of a tensor of an operation.
pub(crate) enum Axis {
    /// Any number of axes, as `rows..`.
    Rest(Ident),
    /// An axis of this length. In an input, a new name is bound to the length.
    Length(Expression),
}

impl Axis {
    /// Returns the name of an axis such as `rows..`. `None` for a single axis.
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

/// An argument of an operation, as `beta: f64 = 1.0`.
pub(crate) struct Asked {
    pub(crate) name: Ident,
    /// The type: `usize`, `f64` or `bool`.
    pub(crate) kind: Ident,
    pub(crate) default: Option<Expression>,
}

/// A tensor of an operation, as `weight: [channels] = 1.0`.
pub(crate) struct Tensor {
    pub(crate) name: Ident,
    pub(crate) axes: Vec<Axis>,
    pub(crate) init: Option<Expression>,
}

/// The contents of a function's braces.
pub(crate) struct Body {
    pub(crate) lets: Vec<Let>,
    pub(crate) element: Expression,
}

/// A binding, as `let w = Embedding(50257, 768);`.
pub(crate) struct Let {
    pub(crate) name: Ident,
    pub(crate) element: Expression,
}

/// An element or a value. Names are not resolved yet, so the two cannot always be told apart.
pub(crate) struct Expression {
    /// A number that is unique among the expressions of a network. Mistakes are reported once for each, however often it is unrolled.
    pub(crate) id: usize,
    pub(crate) place: Place,
    pub(crate) kind: Kind,
}

impl Expression {
    /// Returns the expressions directly inside this one, in source order.
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

    /// Returns this expression and all expressions inside it, in the order in which they begin.
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
    /// Returns every expression in the body, at any depth, in the order in which they begin.
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
    /// A name, as `Relu` or `channels`.
    Name(Ident),
    /// A call, as `Conv2d(64, 3, padding = 1)`.
    Call {
        name: Ident,
        arguments: Vec<Argument>,
    },
    /// A block of a module, as `resnet::bottleneck(64)`. `arguments` is `None` without parentheses.
    Path {
        module: Ident,
        name: Ident,
        arguments: Option<Vec<Argument>>,
    },
    /// A list, as `[a, b, c]`.
    List(Vec<Expression>),
    /// Two values or more, as `(3, 5)`.
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
    /// An expression that could not be read, which has been reported.
    Broken,
}

/// An argument, as `64` or `padding = 1`.
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

    /// Returns the precedence, as in Rust: an operator that binds more tightly has a higher number.
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

    /// Returns the layer that joins branches as this operator joins numbers. `None` if there is none.
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

/// Shortened source for messages: `Conv2d(64, 3, padding = 1)`. The contents of a list are left out.
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

/// An operand of an operator. It is shown in parentheses if it binds less tightly than the second field.
///
/// The syntax tree has no parentheses, so they are added if they are needed.
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

/// Joins arguments with commas: `64, 3, padding = 1`.
fn listed(arguments: &[Argument]) -> String {
    arguments.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
